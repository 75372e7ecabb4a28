// The types and functions that formulas use (runtime/ops/formulas/README.md), and all formulas: f32
// formulas as types for kernels, formulas of integers and bool in 64 bits.
#pragma once

#include "device/math.cuh"
#include "device/storage.cuh"
#include "generated/functions.h"

#define FORWARD(name)                                                            \
  __device__ inline F name##_forward([[maybe_unused]] F x, [[maybe_unused]] F p, \
                                     [[maybe_unused]] F q)
#define GRADIENT(name)                                                             \
  __device__ inline F name##_gradient([[maybe_unused]] F x, [[maybe_unused]] F dy, \
                                      [[maybe_unused]] F p, [[maybe_unused]] F q)
#define BINARY(name) __device__ inline F name##_binary(F a, F b)
#define GRADIENT_A(name) \
  __device__ inline F name##_gradient_a([[maybe_unused]] F a, [[maybe_unused]] F b, F dy)
#define GRADIENT_B(name) \
  __device__ inline F name##_gradient_b([[maybe_unused]] F a, [[maybe_unused]] F b, F dy)
#define COMPARE(name) __device__ inline M name##_compare(F a, F b)

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {
namespace formulas {

using F = float;
using M = bool;

__device__ inline F select(M m, F a, F b) { return m ? a : b; }
__device__ inline M less(F a, F b) { return a < b; }
__device__ inline M equal(F a, F b) { return a == b; }
__device__ inline M is_nan(F x) { return x != x; }
__device__ inline M negative(F x) { return x < 0; }
__device__ inline M positive(F x) { return x > 0; }
__device__ inline F fma_of(F a, F b, F c) { return fmaf(a, b, c); }
__device__ inline F abs_of(F x) { return fabsf(x); }
__device__ inline F min_of(F a, F b) { return fminf(a, b); }
__device__ inline F max_of(F a, F b) { return fmaxf(a, b); }
__device__ inline F quotient_of(F a, F b) { return a / b; }
__device__ inline F floor_of(F x) { return floorf(x); }
__device__ inline F round_of(F x) { return rintf(x); }
__device__ inline F sqrt_of(F x) { return sqrtf(x); }
__device__ inline F exp_of(F x) { return expf(x); }
__device__ inline F expm1_of(F x) { return expm1f(x); }
__device__ inline F log_of(F x) { return logf(x); }
__device__ inline F log1p_of(F x) { return log1pf(x); }
__device__ inline F tanh_of(F x) { return tanhf(x); }
__device__ inline F erf_of(F x) { return erff(x); }
__device__ inline F sin_of(F x) { return sinf(x); }
__device__ inline F cos_of(F x) { return cosf(x); }
__device__ inline F pow_of(F a, F b) { return powf(a, b); }
__device__ inline F times_sigmoid(F f, F x) {
  F rest;
  return f * sigmoid(x, rest);
}

#include "generated/formulas.inc"

// Operands that a function does not use are not read.
#define BOWLINE_FUNCTION(name, ...)                                                 \
  struct name##Function {                                                           \
    float p, q;                                                                     \
    __device__ float operator()([[maybe_unused]] float a, [[maybe_unused]] float b, \
                                [[maybe_unused]] float c) const {                   \
      return name(__VA_ARGS__);                                                     \
    }                                                                               \
  };
#define BOWLINE_FORWARD(name) BOWLINE_FUNCTION(name##_forward, a, p, q)
#define BOWLINE_GRADIENT(name) BOWLINE_FUNCTION(name##_gradient, a, b, p, q)
#define BOWLINE_BINARY(name) BOWLINE_FUNCTION(name##_binary, a, b)
#define BOWLINE_GRADIENT_A(name) BOWLINE_FUNCTION(name##_gradient_a, a, b, c)
#define BOWLINE_GRADIENT_B(name) BOWLINE_FUNCTION(name##_gradient_b, a, b, c)
#include "generated/functions.inc"
#undef BOWLINE_FUNCTION

}  // namespace formulas

namespace whole {

struct F {
  __device__ F(float x) : v(static_cast<int64_t>(x)) {}
  __device__ explicit F(int64_t x) : v(x) {}
  int64_t v;
};
using M = bool;

// Overflow wraps around.
__device__ inline uint64_t bits(F x) { return static_cast<uint64_t>(x.v); }
__device__ inline F of_bits(uint64_t x) { return F(static_cast<int64_t>(x)); }
__device__ inline F operator+(F a, F b) { return of_bits(bits(a) + bits(b)); }
__device__ inline F operator-(F a, F b) { return of_bits(bits(a) - bits(b)); }
__device__ inline F operator*(F a, F b) { return of_bits(bits(a) * bits(b)); }
__device__ inline F operator-(F a) { return of_bits(0 - bits(a)); }

__device__ inline F select(M m, F a, F b) { return m ? a : b; }
__device__ inline M less(F a, F b) { return a.v < b.v; }
__device__ inline M equal(F a, F b) { return a.v == b.v; }
__device__ inline M is_nan(F) { return false; }
__device__ inline M negative(F x) { return x.v < 0; }
__device__ inline M positive(F x) { return x.v > 0; }
__device__ inline F quotient_of(F a, F b) {
  return b.v == 0 ? F(int64_t{0}) : b.v == -1 ? -a : F(a.v / b.v);
}
__device__ inline F abs_of(F x) { return select(negative(x), -x, x); }

#include "generated/formulas_whole.inc"

}  // namespace whole

// Loads and stores for formulas of integers and bool.
__device__ inline whole::F read(const Truth* at) { return whole::F(int64_t{at->byte != 0}); }
template <class T>
__device__ inline whole::F read(const T* at) {
  return whole::F(static_cast<int64_t>(*at));
}
__device__ inline void write(Truth* at, float x) { at->byte = x != 0 ? 1 : 0; }
__device__ inline void write(Truth* at, whole::F x) { at->byte = x.v != 0 ? 1 : 0; }
template <class T>
__device__ inline void write(T* at, whole::F x) {
  *at = static_cast<T>(x.v);
}
}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE

#undef FORWARD
#undef GRADIENT
#undef BINARY
#undef GRADIENT_A
#undef GRADIENT_B
#undef COMPARE
