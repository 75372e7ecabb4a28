// Rows as integers (integer_rows.h) with AVX2. Only for files that are compiled for x86.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "compute/integer_rows.h"
#include "compute/x86.h"

#define BOWLINE_AVX2 __attribute__((target("avx2,fma,f16c")))

namespace bowline::detail::cpu {

// 32 elements of a row as integers times a power of two, the unit.
constexpr int kParts = 4;
struct Numbers {
  __m256i parts[kParts];
  float unit;
};

// The bits of the largest magnitude. Compared as integers, they have the order of the floats.
BOWLINE_AVX2 inline int32_t largest_bits(const __m256* a) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i most = _mm256_setzero_si256();
  for (int i = 0; i < kParts; ++i) {
    most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(a[i]), magnitude));
  }
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xB1));
  return _mm_cvtsi128_si32(four);
}

// Returns false if an element is not finite.
template <class Of>
BOWLINE_AVX2 inline bool to_numbers(const __m256* a, Numbers& out) {
  const int32_t largest = largest_bits(a);
  if (largest >= 0x7F800000) {
    return false;
  }
  // 2^exponent is above the largest magnitude, and 2^(Of::kNumberBits - exponent) is a normal
  // float.
  const int exponent = std::max((largest >> 23) - 126, Of::kNumberBits - 126);
  const __m256 factors =
      _mm256_set1_ps(std::bit_cast<float>((Of::kNumberBits - exponent + 127) << 23));
  for (int i = 0; i < kParts; ++i) {
    out.parts[i] = _mm256_cvtps_epi32(_mm256_mul_ps(a[i], factors));
  }
  out.unit = std::bit_cast<float>((exponent - Of::kNumberBits + 127) << 23);
  return true;
}

// The low bytes of 32 integers that fit into a byte.
BOWLINE_AVX2 inline __m256i to_bytes(const __m256i* parts) {
  const __m256i low = _mm256_packs_epi32(parts[0], parts[1]);
  const __m256i high = _mm256_packs_epi32(parts[2], parts[3]);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
}

// Splits off the low kBits of each number, signed, and leaves them; the numbers are the sums of
// these and of 2^kBits times the rest.
template <int kBits>
BOWLINE_AVX2 inline void split(__m256i* numbers, __m256i* rest) {
  const __m256i half = _mm256_set1_epi32(1 << (kBits - 1));
  for (int i = 0; i < kParts; ++i) {
    rest[i] = _mm256_srai_epi32(_mm256_add_epi32(numbers[i], half), kBits);
    numbers[i] = _mm256_sub_epi32(numbers[i], _mm256_slli_epi32(rest[i], kBits));
  }
}

// Stores all digits of 32 numbers, the highest first. The highest is at most 64, which exceeds a
// signed digit of seven bits, but a digit of seven bits uses all eight bits of a byte.
template <class Of>
BOWLINE_AVX2 inline void store_digits(Numbers numbers, int8_t* out, size_t stride) {
  const auto store = [&](int digit) BOWLINE_AVX2 {
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + static_cast<size_t>(digit) * stride),
                       to_bytes(numbers.parts));
  };
  for (int i = Of::kDigits - 1; i > 0; --i) {
    __m256i rest[kParts];
    split<Of::kDigitBits>(numbers.parts, rest);
    store(i);
    std::copy_n(rest, kParts, numbers.parts);
  }
  store(0);
}

// The sums of 16 numbers and of the next 16.
BOWLINE_AVX2 inline __m128 sums_of_groups(const Numbers& numbers) {
  const __m256i* const p = numbers.parts;
  __m256i sums = _mm256_hadd_epi32(_mm256_add_epi32(p[0], p[1]), _mm256_add_epi32(p[2], p[3]));
  sums = _mm256_hadd_epi32(sums, sums);
  return _mm_cvtepi32_ps(
      _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1)));
}

// The sums of the products of four unsigned bytes with four signed bytes. Two products must fit
// into 16 bits.
BOWLINE_AVX2 inline __m256i sums_of_fours(__m256i codes, __m256i digits, int factor = 1) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, digits),
                           _mm256_set1_epi16(static_cast<int16_t>(factor)));
}

}  // namespace bowline::detail::cpu
