// The angles of rotary position embeddings. An angle is a fraction of a turn in 64-bit fixed point,
// so it is equally exact at large and small positions.
#pragma once

#include <cmath>

#include "core/rope.h"
#include "kernel.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

constexpr int kPairs = 256;  // per launch: a head of 512

// Cosine and sine of an angle in units of 2^-32 turns.
__device__ inline float2 cos_sin(uint32_t turns) {
  const uint32_t quarter = (turns + 0x20000000u) >> 30;  // the nearest quarter turn
  const float f =
      static_cast<float>(static_cast<int32_t>(turns - (quarter << 30))) * 2.3283064365386963e-10f;
  const float s = f * f;  // |f| <= 1/8
  const float si =
      f *
      ((((41.4720726f * s - 76.6978455f) * s + 81.6052017f) * s - 41.3417015f) * s + 6.28318548f);
  const float co =
      (((59.2188721f * s - 85.4428101f) * s + 64.9393158f) * s - 19.7392082f) * s + 1.0f;
  switch (quarter & 3u) {
    case 0:
      return make_float2(co, si);
    case 1:
      return make_float2(-si, co);
    case 2:
      return make_float2(-co, -si);
    default:
      return make_float2(si, -co);
  }
}

// Turns per position, in units of 2^-64 turns.
struct Frequencies {
  uint64_t turns[kPairs];

  __device__ float2 cos_sin_of(uint32_t pair, uint64_t position, bool inverse) const {
    const auto angle = static_cast<uint32_t>(position * turns[pair] >> 32);
    return cos_sin(inverse ? 0u - angle : angle);
  }
};

inline uint64_t turns_of(const RopeAttributes& t, int64_t j, int64_t dims) {
  const long double turn = 2 * std::acos(-1.0L);
  const long double turns = rope_frequency<long double>(t, j, dims) / turn;
  return static_cast<uint64_t>(std::ldexp(turns - std::floor(turns), 64));
}

// Of `pairs` pairs from `first` on. `dims` elements of a head are rotated.
inline Frequencies frequencies_of(const RopeAttributes& t, int64_t first, int pairs, int64_t dims) {
  Frequencies out = {};
  for (int j = 0; j < pairs; ++j) {
    out.turns[j] = turns_of(t, first + j, dims);
  }
  return out;
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
