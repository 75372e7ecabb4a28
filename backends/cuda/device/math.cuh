// Functions that kernels and formulas share.
#pragma once

#include "platform.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// 1 / (1 + e^-x), and 1 minus it in `rest`. Computed from e^-|x|, so that small results keep their
// relative error.
__device__ inline float sigmoid(float x, float& rest) {
  const float e = expf(-fabsf(x));
  const float large = 1.0f / (1.0f + e);
  const float small = e / (1.0f + e);
  rest = x < 0 ? large : small;
  return x < 0 ? small : large;
}

// The normal distribution function and its density. erfc keeps the precision of the small tail.
__device__ inline float normal_cdf(float x, float& density) {
  density = 0.39894228040143268f * expf(-0.5f * x * x);
  return 0.5f * erfcf(-x * 0.70710678118654752f);
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
