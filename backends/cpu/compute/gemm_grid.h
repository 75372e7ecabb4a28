// Divides a matrix product among threads, in the same way for f32 and 16-bit products.
#pragma once

#include <algorithm>
#include <cstddef>

#include "compute/gemm.h"

namespace bowline::detail::cpu {

// Below this number of multiply-adds, one thread is faster than two.
inline constexpr size_t kSerialWork = 100'000;
// A part with this number of rows is worth packing B again.
inline constexpr size_t kPartRows = 512;
// A part with one row is worth a task if it has this number of multiply-adds.
inline constexpr size_t kPartOfRow = 200'000;
// Up to this number of rows, packing B costs more than it saves.
inline constexpr size_t kFewRows = 6;
// Dot products are divided by this number of columns: a cache line of C, which one thread writes
// completely.
inline constexpr size_t kDotLine = 16;
// Rows of a tile, the same for every instruction set.
inline constexpr size_t kTileRowsOfAll = 6;

constexpr bool transposed_a(GemmLayout layout) {
  return layout == GemmLayout::tn || layout == GemmLayout::tt;
}
constexpr bool transposed_b(GemmLayout layout) {
  return layout == GemmLayout::nt || layout == GemmLayout::tt;
}

struct Range {
  size_t begin;
  size_t end;

  size_t size() const { return end - begin; }
};

// The division of C into `rows` x `columns` parts of whole tiles.
struct Grid {
  size_t rows = 1;
  size_t columns = 1;
};

// Multiply-adds of the largest part: about 20 ms on a slow core.
inline constexpr size_t kMostPartWork = size_t{1} << 28;
// Narrower parts would share too little of A.
inline constexpr size_t kPartColumns = 192;

// Chooses the division whose largest part takes the least time. Every division gives the same bits.
inline Grid choose_grid(const GemmShape& s, size_t threads, size_t panel) {
  if (s.m * s.n * s.k < kSerialWork) {
    return {};
  }
  const size_t row_tiles = (s.m + 5) / 6;
  const size_t panels = (s.n + panel - 1) / panel;
  // Cycles per element, measured on Zen 5: packing by copying, packing by transposing, and 2 x 16
  // multiply-adds per cycle.
  const double pack_b = transposed_b(s.layout) ? 0.3 : 0.1;
  const double pack_a = transposed_a(s.layout) ? 0.2 : 0.0;
  Grid best;
  double best_time = 0;
  for (size_t r = 1; r <= std::min(threads, row_tiles); ++r) {
    const size_t c = std::min(threads / r, panels);
    const double m = static_cast<double>((row_tiles + r - 1) / r * 6);
    const double n = static_cast<double>((panels + c - 1) / c * panel);
    const double time = m * n / 32 + n * pack_b + m * pack_a;
    if (r == 1 || time < best_time) {
      best = {r, c};
      best_time = time;
    }
  }
  // Large products get smaller parts, so that a thread that loses its core for a while delays less.
  while (threads > 1 && s.m / best.rows >= 2 * kPartRows && best.rows < 4 * threads) {
    best.rows *= 2;
  }
  while (threads > 1 && s.m == 1 && s.n * s.k / best.columns >= 2 * kPartOfRow &&
         best.columns < 4 * threads && 2 * best.columns <= panels) {
    best.columns *= 2;
  }
  // A run can be cancelled between two parts. Parts of columns do not pack B again.
  const size_t most_columns = std::max(best.columns, s.n / kPartColumns);
  while (s.m / best.rows * (s.n / best.columns) * s.k > kMostPartWork &&
         2 * best.columns <= most_columns) {
    best.columns *= 2;
  }
  return best;
}

// Part `index` of `parts` of 0 .. size, divided at multiples of `unit`.
inline Range part(size_t size, size_t unit, size_t parts, size_t index) {
  const size_t units = (size + unit - 1) / unit;
  return {std::min(size, units * index / parts * unit),
          std::min(size, units * (index + 1) / parts * unit)};
}

}  // namespace bowline::detail::cpu
