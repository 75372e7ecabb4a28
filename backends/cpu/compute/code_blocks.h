// Blocks of 32 quantized values that strides describe (CodeLayout), for the integer dot products
// (integer_dots.h).
#pragma once

#include <cstddef>

#include "compute/codes.h"

namespace bowline::detail::cpu {

inline constexpr size_t kCodeBlock = 32;

// Order of the elements of a block in its bytes.
enum class Order { bytes, pairs, halves };

inline Order order_of(const CodeLayout& l) {
  return l.bits == 8 ? Order::bytes : l.half == 0 ? Order::pairs : Order::halves;
}

// True if each block starts with its scale, or the scales are contiguous.
inline bool has_blocks(const CodeLayout& l) {
  const bool by_row = l.bits == 8 && l.block >= l.columns;
  const bool halves = l.half == 0 || l.half == kCodeBlock / 2;
  const bool with_scales = size_of(l.scale_type) == 2 && l.scale_block == l.block_bytes &&
                           l.block_bytes == kCodeBlock * l.bits / 8 + 2;
  const bool scales = with_scales || l.scale_block == size_of(l.scale_type);
  return l.columns % kCodeBlock == 0 &&
         (by_row || (l.block == kCodeBlock && scales && (l.bits == 8 || halves)));
}

}  // namespace bowline::detail::cpu
