// Compares values by their bits, which is exact for denormals even on devices that flush them to
// zero: 0 equals -0, and NaN maps to `of_nan`.
#ifndef ORDER_GLSL
#define ORDER_GLSL

const int kNanFirst = -2147483647 - 1;
const int kNanLast = 2147483647;

int order_of_bits(uint bits, int of_nan) {
  const uint magnitude = bits & 0x7FFFFFFFu;
  return magnitude > 0x7F800000u ? of_nan : bits >> 31 != 0 ? -int(magnitude) : int(magnitude);
}

#endif
