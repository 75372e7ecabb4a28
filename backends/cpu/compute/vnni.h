// Instructions of AVX-512 for the integer dot products (integer_dots.h). Only for files that are
// compiled for x86.
#pragma once

#include "compute/targets.h"
#include "compute/x86.h"

#define BOWLINE_VNNI \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")))

namespace bowline::detail::cpu {

// Whether the kernels may use these instructions.
inline bool has_vnni() {
  static const bool there =
      __builtin_cpu_supports("avx512vnni") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return there && has_avx512();
}

BOWLINE_VNNI inline __m512 sums_of_pairs(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}

// Adds the lanes of each of four vectors.
BOWLINE_VNNI inline __m128 sums_of_lanes(const __m512* v) {
  const __m512d low = _mm512_castps_pd(sums_of_pairs(v[0], v[1]));
  const __m512d high = _mm512_castps_pd(sums_of_pairs(v[2], v[3]));
  const __m512 fours = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(low, high)),
                                     _mm512_castpd_ps(_mm512_unpackhi_pd(low, high)));
  const __m256 eights =
      _mm256_add_ps(_mm512_castps512_ps256(fours), _mm512_extractf32x8_ps(fours, 1));
  return _mm_add_ps(_mm256_castps256_ps128(eights), _mm256_extractf128_ps(eights, 1));
}

}  // namespace bowline::detail::cpu
