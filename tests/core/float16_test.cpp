// f16 and bf16: every pattern, and every boundary between two neighbours.
#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace bowline {
namespace {

// The value of a binary float with `fraction` fraction bits and this bias.
double value_of(uint32_t bits, int fraction, int bias) {
  const int exponent = static_cast<int>((bits & 0x7FFF) >> fraction);
  const double rest = bits & ((1u << fraction) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 2 * bias + 1) {
    return rest == 0 ? sign * INFINITY : NAN;
  }
  return exponent == 0
             ? sign * std::ldexp(rest, 1 - bias - fraction)
             : sign * std::ldexp(rest + std::ldexp(1, fraction), exponent - bias - fraction);
}

template <class T>
void check_all(int fraction, int bias) {
  const uint32_t infinity = static_cast<uint32_t>(2 * bias + 1) << fraction;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float x = to_f32(T{static_cast<uint16_t>(bits)});
    const double wanted = value_of(bits, fraction, bias);
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(x)) << bits;
      EXPECT_TRUE(std::isnan(to_f32(from_f32<T>(x)))) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(x), wanted) << bits;
    ASSERT_EQ(std::signbit(x), (bits & 0x8000) != 0) << bits;
    ASSERT_EQ(from_f32<T>(x).bits, bits);
  }
  // Between two neighbours: the middle rounds to even, values beside it to the nearer one.
  for (uint32_t bits = 0; bits < infinity; ++bits) {
    const double low = value_of(bits, fraction, bias);
    const double high =
        bits + 1 == infinity ? std::ldexp(1, bias + 1) : value_of(bits + 1, fraction, bias);
    const auto middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(static_cast<double>(middle), (low + high) / 2);
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(from_f32<T>(middle).bits, even);
    ASSERT_EQ(from_f32<T>(-middle).bits, even | 0x8000);
    ASSERT_EQ(from_f32<T>(std::nextafter(middle, 0.0f)).bits, bits);
    ASSERT_EQ(from_f32<T>(std::nextafter(middle, INFINITY)).bits, bits + 1);
  }
  EXPECT_EQ(from_f32<T>(std::numeric_limits<float>::max()).bits, infinity);
  EXPECT_EQ(from_f32<T>(-INFINITY).bits, infinity | 0x8000);
}

TEST(Float16, EveryPatternOfF16AndEveryBoundary) { check_all<f16>(10, 15); }
TEST(Float16, EveryPatternOfBf16AndEveryBoundary) { check_all<bf16>(7, 127); }

}  // namespace
}  // namespace bowline
