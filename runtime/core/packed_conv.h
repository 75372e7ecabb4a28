// Shapes of FusedConv: a convolution over one or two spatial axes. Its channels are last, and its
// weight is packed in blocks of outputs.
#pragma once

#include "core/attributes.h"
#include "core/windows.h"

namespace bowline {

// The number of outputs per block of the packed weight [blocks, window..., inputs, kPackedOutputs].
constexpr int64_t kPackedOutputs = 32;

constexpr int64_t packed_blocks(int64_t outputs) {
  return (outputs + kPackedOutputs - 1) / kPackedOutputs;
}

// Converts the shape [N, spatial..., C] to [N, C, spatial...], and back.
inline Shape channels_first(const Shape& x) {
  Shape y{x[0], x.back()};
  for (int a = 1; a < x.rank() - 1; ++a) {
    y.push_back(x[a]);
  }
  return y;
}
inline Shape channels_last(const Shape& x) {
  Shape y{x[0]};
  for (int a = 2; a < x.rank(); ++a) {
    y.push_back(x[a]);
  }
  y.push_back(x[1]);
  return y;
}

inline Shape packed_shape(const Shape& weight) {
  Shape packed{packed_blocks(weight[0])};
  for (int a = 2; a < weight.rank(); ++a) {
    packed.push_back(weight[a]);
  }
  packed.push_back(weight[1]);
  packed.push_back(kPackedOutputs);
  return packed;
}
inline Shape unpacked(const Shape& packed, int64_t outputs) {
  Shape weight{outputs, packed[packed.rank() - 2]};
  for (int a = 1; a < packed.rank() - 2; ++a) {
    weight.push_back(packed[a]);
  }
  return weight;
}

inline Convolution packed_convolution(const FusedConvAttributes& t, const Shape& x,
                                      const Shape& packed, const Shape& y) {
  return convolution_of(t, channels_first(x), unpacked(packed, y.back()), channels_first(y));
}

}  // namespace bowline
