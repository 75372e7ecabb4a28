// What FusedConv computes: a convolution over two spatial axes with the channels last and a weight in blocks of outputs.
#pragma once

#include "core/attributes.h"
#include "core/windows.h"

namespace bowline {

// Outputs in a block of the packed weight [blocks, window..., inputs, kPackedOutputs].
constexpr int64_t kPackedOutputs = 32;

constexpr int64_t packed_blocks(int64_t outputs) {
  return (outputs + kPackedOutputs - 1) / kPackedOutputs;
}

// [N, C, H, W] of [N, H, W, C], and back.
inline Shape channels_first(const Shape& x) { return {x[0], x[3], x[1], x[2]}; }

inline Shape channels_last(const Shape& x) { return {x[0], x[2], x[3], x[1]}; }

inline Shape packed_shape(const Shape& weight) {
  return {packed_blocks(weight[0]), weight[2], weight[3], weight[1], kPackedOutputs};
}
inline Shape unpacked(const Shape& packed, int64_t outputs) {
  return {outputs, packed[3], packed[1], packed[2]};
}

inline Convolution packed_convolution(const FusedConvAttributes& t, const Shape& x,
                                      const Shape& packed, const Shape& y) {
  return convolution_of(t, channels_first(x), unpacked(packed, y[3]), channels_first(y));
}

}  // namespace bowline
