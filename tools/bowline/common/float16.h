// Of the tools: f16 and bf16 as f32 and back, to nearest even. NaN stays NaN, what is too large
// becomes infinite.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace bowline::numbers {

inline float f32_of_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

inline float f32_of_f16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits} >> 15 << 31;
  const uint32_t exponent = bits >> 10 & 31;
  const uint32_t fraction = bits & 1023;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

inline uint16_t bf16_of_f32(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (x != x) {
    return static_cast<uint16_t>(bits >> 16 | 0x40);
  }
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

inline uint16_t f16_of_f32(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 31 << 15;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) {
    return static_cast<uint16_t>(sign | 0x7E00);
  }
  if (magnitude >= 0x477FF000) {  // what rounds to more than 65504
    return static_cast<uint16_t>(sign | 0x7C00);
  }
  if (magnitude < 0x38800000) {  // denormals: the sum rounds at their last bit
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000));
  }
  const uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - ((127 - 15) << 10)));
}

// A number at any address.
template <class T>
T load(const std::byte* from) {
  T out;
  std::memcpy(&out, from, sizeof(out));
  return out;
}

}  // namespace bowline::numbers
