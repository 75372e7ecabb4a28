// Rows as integers (integer_rows.h) with NEON. The integers and units have the bits of AVX2
// (row_integers.h). Only for files that are compiled for aarch64.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "compute/arm.h"
#include "compute/integer_rows.h"

namespace bowline::detail::cpu {

// 32 elements of a row as integers times a power of two, the unit.
constexpr size_t kParts = 8;
struct Numbers {
  int32x4_t parts[kParts];
  float unit;
};

// Returns false if an element is not finite.
template <class Of>
inline bool to_numbers(const float32x4_t* a, Numbers& out) {
  uint32x4_t most = vdupq_n_u32(0);  // compared as integers, magnitudes have the order of floats
  for (size_t i = 0; i < kParts; ++i) {
    most = vmaxq_u32(most, vreinterpretq_u32_f32(vabsq_f32(a[i])));
  }
  const auto largest = static_cast<int32_t>(vmaxvq_u32(most));
  if (largest >= 0x7F800000) {
    return false;
  }
  // 2^exponent is above the largest magnitude, and 2^(Of::kNumberBits - exponent) is a normal
  // float.
  const int exponent = std::max((largest >> 23) - 126, Of::kNumberBits - 126);
  const auto factor = std::bit_cast<float>((Of::kNumberBits - exponent + 127) << 23);
  for (size_t i = 0; i < kParts; ++i) {
    out.parts[i] = vcvtnq_s32_f32(vmulq_n_f32(a[i], factor));
  }
  out.unit = std::bit_cast<float>((exponent - Of::kNumberBits + 127) << 23);
  return true;
}

// The low bytes of 16 integers.
inline int8x16_t to_bytes(const int32x4_t* parts) {
  const int16x8_t low = vcombine_s16(vmovn_s32(parts[0]), vmovn_s32(parts[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(parts[2]), vmovn_s32(parts[3]));
  return vcombine_s8(vmovn_s16(low), vmovn_s16(high));
}

// Stores all digits of 32 numbers, the highest first. Each lower digit is the signed rest of a
// division by 2^Of::kDigitBits, so the highest is at most 64.
template <class Of>
inline void store_digits(Numbers numbers, int8_t* out, size_t stride) {
  for (size_t digit = Of::kDigits; digit-- > 0;) {
    int32x4_t rest[kParts] = {};
    for (size_t i = 0; digit > 0 && i < kParts; ++i) {
      const int32x4_t half = vdupq_n_s32(1 << (Of::kDigitBits - 1));
      rest[i] = vshrq_n_s32(vaddq_s32(numbers.parts[i], half), Of::kDigitBits);
      numbers.parts[i] = vsubq_s32(numbers.parts[i], vshlq_n_s32(rest[i], Of::kDigitBits));
    }
    vst1q_s8(out + digit * stride, to_bytes(numbers.parts));
    vst1q_s8(out + digit * stride + 16, to_bytes(numbers.parts + kParts / 2));
    std::copy_n(rest, kParts, numbers.parts);
  }
}

}  // namespace bowline::detail::cpu
