// Functions that kernels and formulas share.
#pragma once

#include "platform.h"
#ifndef BOWLINE_CUDA_EMULATED
#include "ptx.cuh"
#endif

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// 1 / (1 + e^-x), and 1 minus it in `rest`. Computed from e^-|x|, so that small results keep their
// relative error. A division has a branch for large and small divisors, which here are none. It
// would keep the compiler from computing several results at once.
__device__ inline float sigmoid(float x, float& rest) {
  const float e = expf(-fabsf(x));
  const float divisor = 1.0f + e;  // 1 to 2
  const float estimate = reciprocal(divisor);
  const float large = fmaf(fmaf(-divisor, estimate, 1.0f), estimate, estimate);
  const float small = e * large;
  rest = x < 0 ? large : small;
  return x < 0 ? small : large;
}

// The normal distribution function and its density. erfc keeps the precision of the small tail.
__device__ inline float normal_cdf(float x, float& density) {
  density = 0.39894228040143268f * expf(-0.5f * x * x);
  return 0.5f * erfcf(-x * 0.70710678118654752f);
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
