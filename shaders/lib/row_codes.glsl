// Quantizes a block of a row to 8 bits (Encoding::takes_rows):
//   scale = max |x| / 127, code = x / scale to nearest even. A block with a non-finite value
//   becomes zeros.
const uint kInfinityBits = 0x7F800000u;

// From the bits of |x| of each element of the subgroup, or a maximum of some. The bits have the
// order of the values, and NaN is last.
float scale_of(uint most) {
  most = subgroupMax(most);
  return most < kInfinityBits ? uintBitsToFloat(most) / 127 : 0;
}
uint bits_of_magnitude(float x) { return floatBitsToUint(x) & 0x7FFFFFFFu; }

uint code_of(float x, float scale) {
  const int code = scale == 0 ? 0 : int(clamp(roundEven(x / scale), -128.0, 127.0));
  return uint(code) & 255u;
}
