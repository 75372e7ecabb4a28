// The order of numbers by their bits, exact for denormals also on devices that take them for zero:
// 0 is equal to -0, and NaN is what comes in as `of_nan`.
#ifndef ORDER_GLSL
#define ORDER_GLSL

const int kNanFirst = -2147483647 - 1;
const int kNanLast = 2147483647;

int order_of_bits(uint bits, int of_nan) {
  const uint magnitude = bits & 0x7FFFFFFFu;
  return magnitude > 0x7F800000u ? of_nan : bits >> 31 != 0 ? -int(magnitude) : int(magnitude);
}

#endif
