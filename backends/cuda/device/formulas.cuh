// The dialect of runtime/ops/formulas for one number, and all formulas as types that kernels hold.
#pragma once

#include "device/math.cuh"
#include "generated/functions.h"

namespace bowline::BOWLINE_CUDA_NAMESPACE {
namespace formulas {

using F = float;
using M = bool;

__device__ inline F select(M m, F a, F b) { return m ? a : b; }
__device__ inline M less(F a, F b) { return a < b; }
__device__ inline M negative(F x) { return x < 0; }
__device__ inline M positive(F x) { return x > 0; }
__device__ inline F fma_of(F a, F b, F c) { return fmaf(a, b, c); }
__device__ inline F abs_of(F x) { return fabsf(x); }
__device__ inline F min_of(F a, F b) { return fminf(a, b); }
__device__ inline F max_of(F a, F b) { return fmaxf(a, b); }
__device__ inline F exp_of(F x) { return expf(x); }
__device__ inline F log1p_of(F x) { return log1pf(x); }
__device__ inline F tanh_of(F x) { return tanhf(x); }
__device__ inline F times_sigmoid(F f, F x) {
  F rest;
  return f * sigmoid(x, rest);
}

#define FORWARD(name)                                                            \
  __device__ inline F name##_forward([[maybe_unused]] F x, [[maybe_unused]] F p, \
                                     [[maybe_unused]] F q)
#define GRADIENT(name)                                                             \
  __device__ inline F name##_gradient([[maybe_unused]] F x, [[maybe_unused]] F dy, \
                                      [[maybe_unused]] F p, [[maybe_unused]] F q)
#define BINARY(name) __device__ inline F name##_binary(F a, F b)
#include "generated/formulas.inc"
#undef FORWARD
#undef GRADIENT
#undef BINARY

// Of one operand, the second is not read.
#define BOWLINE_FORWARD(name)                                                             \
  struct name##Function {                                                                 \
    float p, q;                                                                           \
    __device__ float operator()(float a, float) const { return name##_forward(a, p, q); } \
  };
#define BOWLINE_GRADIENT(name)                                                                  \
  struct name##Gradient {                                                                       \
    float p, q;                                                                                 \
    __device__ float operator()(float a, float b) const { return name##_gradient(a, b, p, q); } \
  };
#define BOWLINE_BINARY(name)                                                            \
  struct name##Function {                                                               \
    float p, q;                                                                         \
    __device__ float operator()(float a, float b) const { return name##_binary(a, b); } \
  };
#include "generated/functions.inc"

}  // namespace formulas
}  // namespace bowline::BOWLINE_CUDA_NAMESPACE
