#include "conformance/elements.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/element_types.h"

namespace bowline::conformance {
namespace {

// Rounds directly, because rounding to f32 first would round twice.
double to_bits(double x, int precision, int least, int most) {
  if (x == 0 || !std::isfinite(x)) {
    return x;
  }
  int exponent = 0;
  (void)std::frexp(x, &exponent);
  const int spacing = std::max(exponent - precision, least);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -spacing)), spacing);
  return std::abs(rounded) < std::ldexp(1.0, most) ? rounded : std::copysign(INFINITY, x);
}

}  // namespace

double round_to(DType dtype, double x) {
  switch (dtype) {
    case DType::f32:
      return static_cast<double>(static_cast<float>(x));
    case DType::f16:
      return to_bits(x, 11, -24, 16);
    case DType::bf16:
      return to_bits(x, 8, -133, 128);
    default:
      return x;
  }
}

double unit_roundoff(DType dtype) {
  return dtype == DType::f32    ? 0x1p-24
         : dtype == DType::f16  ? 0x1p-11
         : dtype == DType::bf16 ? 0x1p-8
                                : 0;
}

double half_of_smallest(DType dtype) {
  return dtype == DType::f32    ? 0x1p-150
         : dtype == DType::f16  ? 0x1p-25
         : dtype == DType::bf16 ? 0x1p-134
                                : 0;
}

void store(std::span<const double> values, DType dtype, std::byte* to) {
  with_type(dtype, [&]<class T>() {
    for (const double v : values) {
      T element;
      if constexpr (std::same_as<T, int64_t>) {
        // As a double, the largest i64 is 2^63.
        element = v >= 0x1p63 ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(v);
      } else if constexpr (std::is_arithmetic_v<T>) {
        element = static_cast<T>(v);
      } else if constexpr (std::same_as<T, Truth>) {
        element.byte = static_cast<uint8_t>(v);
      } else {
        element = from_f32<T>(static_cast<float>(round_to(dtype, v)));
      }
      std::memcpy(to, &element, sizeof(element));
      to += sizeof(element);
    }
  });
}

std::vector<double> load(const std::byte* from, size_t elements, DType dtype) {
  std::vector<double> out(elements);
  with_type(dtype, [&]<class T>() {
    for (size_t i = 0; i < elements; ++i) {
      T element;
      std::memcpy(&element, from + i * sizeof(element), sizeof(element));
      if constexpr (std::is_arithmetic_v<T>) {
        out[i] = static_cast<double>(element);
      } else if constexpr (std::same_as<T, Truth>) {
        out[i] = element.byte;
      } else {
        out[i] = static_cast<double>(to_f32(element));
      }
    }
  });
  return out;
}

}  // namespace bowline::conformance
