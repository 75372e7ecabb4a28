// f16 (IEEE 754 binary16) and bf16 (the upper half of an f32) as storage: conversions from and to
// f32, to nearest even. NaN stays NaN, what is too large becomes infinite, denormals are kept.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace bowline {

struct f16 {
  uint16_t bits = 0;
};
struct bf16 {
  uint16_t bits = 0;
};

constexpr float to_f32(float x) { return x; }

constexpr float to_f32(bf16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

constexpr float to_f32(f16 x) {
  const uint32_t sign = uint32_t{x.bits} >> 15 << 31;
  const uint32_t exponent = x.bits >> 10 & 31;
  const uint32_t fraction = x.bits & 1023;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

template <class T>
constexpr T from_f32(float x);

template <>
constexpr float from_f32<float>(float x) {
  return x;
}

template <>
constexpr bf16 from_f32<bf16>(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (x != x) {
    return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  }
  return {static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}

template <>
constexpr f16 from_f32<f16>(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 31 << 15;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  uint32_t out = 0;
  if (magnitude > 0x7F800000) {
    out = 0x7E00;
  } else if (magnitude >= 0x47800000) {  // 2^16
    out = 0x7C00;
  } else if (magnitude < 0x38800000) {  // 2^-14: steps of 2^-24, to which adding 1/2 rounds
    out = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000;
  } else {  // a carry out of the fraction is the next exponent
    out = (magnitude - (uint32_t{127 - 15} << 23) + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  }
  return {static_cast<uint16_t>(sign | out)};
}

// A float as an integer: towards zero, at the nearest end of the range where it lies outside, 0 of
// NaN.
template <class To>
constexpr To saturated(float x) {
  // The ends are powers of two, or one less, which the conversion rounds up to one.
  using Limits = std::numeric_limits<To>;
  return x != x                                   ? To{0}
         : x >= static_cast<float>(Limits::max()) ? Limits::max()
         : x <= static_cast<float>(Limits::min()) ? Limits::min()
                                                  : static_cast<To>(x);
}

}  // namespace bowline
