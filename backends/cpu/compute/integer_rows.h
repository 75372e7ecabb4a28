// Rows as integers, for the integer dot products (integer_dots.h): what all instruction sets share.
#pragma once

#include <cstddef>

#include "compute/block_variants.h"
#include "compute/spans.h"

namespace bowline::detail::cpu {

// Conversion of a row to integers: bits per signed digit, and bits of the largest magnitude. The
// factors of the digits fill the rest of 32 bits.
struct OfF32 {
  static constexpr int kDigits = 3;
  static constexpr int kDigitBits = 7;
  static constexpr int kNumberBits = 20;
};
struct OfBf16 {
  static constexpr int kDigits = 2;
  static constexpr int kDigitBits = 8;
  static constexpr int kNumberBits = 14;
};
inline constexpr int kMostDigits = 3;

// The products of an instruction set. `Set::Span` has kSpan numbers of a row as integers. For Of =
// OfF32 and OfBf16, make_span<Of>(numbers, span) makes a span, or returns false if the numbers do
// not fit, and Set::dots_of_format<Of>(format) returns the products.
template <class Set>
struct BlockDotsOf {
  template <class Of>
  static bool make_row(const float* a, size_t columns, float* row) {
    auto* const to = reinterpret_cast<typename Set::Span*>(row);
    for (size_t i = 0; i < columns / kSpan; ++i) {
      if (!make_span<Of>(a + i * kSpan, to[i])) {
        return false;
      }
    }
    return true;
  }

  static constexpr BlockDots kDots{sizeof(typename Set::Span),
                                   [](IntegersOf of, const float* a, size_t columns, float* row) {
                                     return of == IntegersOf::bf16
                                                ? make_row<OfBf16>(a, columns, row)
                                                : make_row<OfF32>(a, columns, row);
                                   },
                                   [](const BlockFormat& format, IntegersOf of) {
                                     return of == IntegersOf::bf16
                                                ? Set::template dots_of_format<OfBf16>(format)
                                                : Set::template dots_of_format<OfF32>(format);
                                   }};
};

}  // namespace bowline::detail::cpu
