// Activation functions and their derivatives.
#pragma once

#include "platform.h"

namespace bowline::BOWLINE_CUDA_NAMESPACE {

// 1 / (1 + e^-x), without overflow.
__device__ inline float sigmoid(float x) {
  const float e = expf(-fabsf(x));
  return (x >= 0 ? 1.0f : e) / (1.0f + e);
}

__device__ inline float silu(float x) { return x * sigmoid(x); }

// d/dx x s(x) = s + x s (1 - s), where 1 - s(x) = s(-x).
__device__ inline float silu_slope(float x) {
  const float s = sigmoid(x);
  return s + x * s * sigmoid(-x);
}

constexpr float kSqrtHalf = 0.70710678118654752f;
constexpr float kSqrtTwoOverPi = 0.79788456080286536f;
constexpr float kInvSqrtTwoPi = 0.39894228040143268f;

// The normal distribution function; erfc keeps the digits of its small tail.
__device__ inline float normal_cdf(float x) { return 0.5f * erfcf(-x * kSqrtHalf); }

__device__ inline float gelu_erf(float x) { return x * normal_cdf(x); }
__device__ inline float gelu_erf_slope(float x) {
  return normal_cdf(x) + x * kInvSqrtTwoPi * expf(-0.5f * x * x);
}

// 0.5 (1 + tanh u) = s(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
__device__ inline float gelu_tanh(float x) {
  const float u = kSqrtTwoOverPi * (x + 0.044715f * x * x * x);
  return x * sigmoid(2 * u);
}
__device__ inline float gelu_tanh_slope(float x) {
  const float u = kSqrtTwoOverPi * (x + 0.044715f * x * x * x);
  const float du = kSqrtTwoOverPi * (1 + 3 * 0.044715f * x * x);
  const float s = sigmoid(2 * u);
  const float t = sigmoid(-2 * u);
  const float bend = 2 * x * s * t * du;
  // Far out s t is 0 while x du may be infinite: the limit is 0.
  return s + (s == 0 || t == 0 ? 0 : bend);
}

}  // namespace bowline::BOWLINE_CUDA_NAMESPACE
