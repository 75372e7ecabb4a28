// Converts f16 and bf16, as 16 bits, from and to f32 with rounding to nearest even. The rounding
// and denormals of a driver's own conversions are not specified.
#if !defined(HALF_GLSL)
#define HALF_GLSL
float half_to_float(uint h) {
  const uint sign = (h & 0x8000u) << 16;
  const uint exponent = (h >> 10) & 31u;
  const uint fraction = h & 1023u;
  if (exponent == 0) {
    return uintBitsToFloat(floatBitsToUint(float(fraction) * 5.9604644775390625e-8) | sign);
  }
  return uintBitsToFloat(sign | (exponent == 31 ? 255u : exponent + 112u) << 23 | fraction << 13);
}

uint float_to_half(float x) {
  const uint bits = floatBitsToUint(x);
  const uint sign = (bits >> 16) & 0x8000u;
  const uint magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return sign | 0x7E00u;
  }
  if (magnitude >= 0x47800000u) {  // 2^16
    return sign | 0x7C00u;
  }
  if (magnitude < 0x38800000u) {  // 2^-14: steps of 2^-24; adding 1/2 rounds
    return sign | (floatBitsToUint(uintBitsToFloat(magnitude) + 0.5) - 0x3F000000u);
  }
  return sign | (magnitude - (112u << 23) + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
}

float bhalf_to_float(uint h) { return uintBitsToFloat(h << 16); }

uint float_to_bhalf(float x) {
  const uint bits = floatBitsToUint(x);
  return (bits & 0x7FFFFFFFu) > 0x7F800000u ? bits >> 16 | 0x40u
                                            : (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
}
#endif
