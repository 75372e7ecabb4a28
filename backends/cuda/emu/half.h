// The 16-bit floating-point types of cuda_fp16.h and cuda_bf16.h, as far as storage goes: conversions to and from f32,
// to nearest even. Arithmetic is done in f32 on every device.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace bowline::cuda_emu {

struct __half {
  uint16_t bits;
};
struct __nv_bfloat16 {
  uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 x) {
  return std::bit_cast<float>(uint32_t{x.bits} << 16);
}

inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) {
    return {0x7FFF};
  }
  return {static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}

inline float __half2float(__half x) {
  const uint32_t exponent = x.bits >> 10 & 31;
  const uint32_t fraction = x.bits & 1023;
  float magnitude = 0;
  if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), -24);
  } else if (exponent == 31) {
    magnitude = fraction == 0 ? INFINITY : NAN;
  } else {
    magnitude = std::ldexp(static_cast<float>(1024 + fraction), static_cast<int>(exponent) - 25);
  }
  return (x.bits & 0x8000) != 0 ? -magnitude : magnitude;
}

inline __half __float2half_rn(float x) {
  const auto sign = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16 & 0x8000);
  if (std::isnan(x)) {
    return {0x7FFF};
  }
  const float magnitude = std::fabs(x);
  if (magnitude == 0) {
    return {sign};
  }
  if (magnitude >= 65520) {  // halfway between the largest half and the next power of two
    return {static_cast<uint16_t>(sign | 0x7C00)};
  }
  int exponent = 0;
  (void)std::frexp(magnitude, &exponent);
  // The spacing of halves around x; below 2^-14 they are denormal.
  const int spacing = exponent > -13 ? exponent - 11 : -24;
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -spacing)));
  // In units of the spacing a normal half counts 1024 to 2048, and 2048 is the next exponent: adding does the carry.
  const uint32_t biased = exponent > -13 ? static_cast<uint32_t>(exponent + 13) << 10 : 0;
  return {static_cast<uint16_t>(sign | (biased + steps))};
}

}  // namespace bowline::cuda_emu
