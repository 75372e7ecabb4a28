// The block formats of runtime/base/formats: their dialect in CUDA (formats/README.md).
#pragma once

#include "base/formats.h"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {
namespace formats {

#define FUNCTION __device__ inline

using Block = const uint8_t*;

__device__ inline int byte_at(Block b, int i) { return b[i]; }
__device__ inline int signed_at(Block b, int i) { return static_cast<int8_t>(b[i]); }
// Blocks with f16 scales, and their scales, start at even addresses.
__device__ inline float half_at(Block b, int i) {
  return read(reinterpret_cast<const __half*>(b + i));
}
__device__ inline float float_of_bits(int bits) {
  return __uint_as_float(static_cast<unsigned>(bits));
}

#include "base/format_formulas.inc"

#undef FUNCTION

}  // namespace formats
}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
