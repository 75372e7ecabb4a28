// Parts of the integer dot products (integer_dots.h) of all encodings: rows as integers, and sums
// of lanes. Only for files that are compiled for x86.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "compute/x86.h"

#define BOWLINE_VNNI \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")))

namespace bowline::detail::cpu {

// Whether the machine has these instructions.
inline bool has_vnni() {
  static const bool there =
      __builtin_cpu_supports("avx512vnni") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return there;
}

// Conversion of a row to integers: bits per signed digit, and bits of the largest magnitude. The
// factors of the digits fill the rest of 32 bits.
struct OfF32 {
  static constexpr int kDigits = 3;
  static constexpr int kDigitBits = 7;
  static constexpr int kNumberBits = 20;
};
struct OfBf16 {
  static constexpr int kDigits = 2;
  static constexpr int kDigitBits = 8;
  static constexpr int kNumberBits = 14;
};
inline constexpr int kMostDigits = 3;

// The bits of the largest magnitude. Compared as integers, they have the order of the floats.
BOWLINE_VNNI inline int32_t largest_bits(__m512 first, __m512 second) {
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  return _mm512_reduce_max_epi32(
      _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(first), magnitude),
                       _mm512_and_si512(_mm512_castps_si512(second), magnitude)));
}

// 32 elements of a as integers times a power of two, the unit.
struct Numbers {
  __m512i low;
  __m512i high;
  float unit;
};

// Returns false if an element is not finite.
template <class Of>
BOWLINE_VNNI inline bool to_numbers(__m512 first, __m512 second, Numbers& out) {
  const int32_t largest = largest_bits(first, second);
  if (largest >= 0x7F800000) {
    return false;
  }
  // 2^exponent is above the largest magnitude, and 2^(Of::kNumberBits - exponent) is a normal
  // float.
  const int exponent = std::max((largest >> 23) - 126, Of::kNumberBits - 126);
  const __m512 factors =
      _mm512_set1_ps(std::bit_cast<float>((Of::kNumberBits - exponent + 127) << 23));
  out.low = _mm512_cvtps_epi32(_mm512_mul_ps(first, factors));
  out.high = _mm512_cvtps_epi32(_mm512_mul_ps(second, factors));
  out.unit = std::bit_cast<float>((exponent - Of::kNumberBits + 127) << 23);
  return true;
}

// Splits off the lowest digit of 16 integers; the integers keep the rest.
template <class Of>
BOWLINE_VNNI inline __m128i take_digit(__m512i& numbers) {
  constexpr int kHalf = 1 << (Of::kDigitBits - 1);
  const __m512i above =
      _mm512_srai_epi32(_mm512_add_epi32(numbers, _mm512_set1_epi32(kHalf)), Of::kDigitBits);
  const __m512i digit = _mm512_sub_epi32(numbers, _mm512_slli_epi32(above, Of::kDigitBits));
  numbers = above;
  return _mm512_cvtepi32_epi8(digit);
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
