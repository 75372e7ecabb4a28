// See gemm.h. Blocks of B are packed into panels as wide as a tile, so that a panel stays in the L1
// cache while all rows of A use it. A is read in place unless it is stored transposed.
#include "compute/gemm.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/checked.h"
#include "compute/code_rows.h"
#include "compute/gemm_grid.h"
#include "compute/integer_dots.h"
#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/gemm.cpp"
#include "hwy/foreach_target.h"
#include "compute/gemm-inl.h"
#include "compute/code_dots-inl.h"
#include "compute/codes-inl.h"
#include "compute/dots-inl.h"
#include "compute/span_panels-inl.h"
// clang-format on

#ifndef BOWLINE_CPU_GEMM_ONCE
#define BOWLINE_CPU_GEMM_ONCE
namespace bowline::detail::cpu {
namespace {

// Depth of a block of k. It is fixed, because it decides the order of the sum.
constexpr size_t kDepth = 256;
// Number of columns of B and of rows of A that a thread packs at a time: 256 x 512 floats are half
// of a 1 MiB L2 cache.
constexpr size_t kColumns = 512;
constexpr size_t kRows = 96;
// Up to this number of rows of A, dot products with rows of B [n, k] are faster than tiles, which
// need B transposed.
constexpr size_t kMostDotRows = 64;
// Number of elements of a row of B per step of dot products: four dequantized rows are a quarter of
// the L1 cache.
constexpr size_t kDecoded = 512;

struct Job {
  GemmShape shape;
  const float* a;
  const float* b;
  float* c;
  GemmOptions options;
  const float* integers = nullptr;  // (optional) the only row of A, converted by to_integers()
  bool code_rows = false;           // the product is that of code_rows.h
  // Rows of a tile, and columns of a panel.
  size_t tile_rows = kTileRowsOfAll;
  size_t panel = 0;
};

// Floats of scratch memory per thread. The number of columns of a panel is a divisor of 64, or 24;
// a multiple of 24 is at most 16 above a multiple of 64. Strips have 6 rows or 4.
size_t thread_scratch_floats(const GemmShape& s, bool a_codes) {
  const size_t depth = std::min(s.k, kDepth);
  const size_t panels = depth * std::min<size_t>(round_up(s.n, 64) + 16, kColumns);
  const size_t b = s.m == 1 ? std::max(panels, integer_row_floats(s.k)) : panels;
  const size_t a =
      transposed_a(s.layout) || a_codes ? depth * std::min<size_t>(round_up(s.m, 12), kRows) : 0;
  return round_up(a + b + 16, 16);
}

}  // namespace
}  // namespace bowline::detail::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {

// Tiles with fewer rows and more columns need the same number of registers. If they suit the sides
// of the product better, less of a tile is empty.
#if HWY_TARGET == HWY_AVX2
constexpr size_t kWideRows = 4;
constexpr size_t kWideVectors = 3;
#else
constexpr size_t kWideRows = kTileRows;
constexpr size_t kWideVectors = kTileVectors;
#endif

TileFunction wide_tile_for(size_t rows, size_t vectors) {
#if HWY_TARGET == HWY_AVX2
#define BOWLINE_TILE_ROW(r) \
  { tile_function<r, 1>, tile_function<r, 2>, tile_function<r, 3> }
  static constexpr TileFunction kTiles[kWideRows][kWideVectors] = {
      BOWLINE_TILE_ROW(1), BOWLINE_TILE_ROW(2), BOWLINE_TILE_ROW(3), BOWLINE_TILE_ROW(4)};
#undef BOWLINE_TILE_ROW
  return kTiles[rows - 1][vectors - 1];
#else
  return tile_for(rows, vectors);
#endif
}

// Estimated half cycles per element of k: two multiply-adds and two loads per cycle, and a latency
// of five cycles per sum.
size_t tiles_time(const GemmShape& s, size_t rows, size_t vectors) {
  const size_t all_vectors = (s.n + hn::Lanes(TileTag()) - 1) / hn::Lanes(TileTag());
  const auto time = [](size_t r, size_t v) {
    return r == 0 || v == 0 ? 0 : HWY_MAX(HWY_MAX(r * v, r + v), size_t{10});
  };
  const auto column = [&](size_t v) { return s.m / rows * time(rows, v) + time(s.m % rows, v); };
  return all_vectors / vectors * column(vectors) + column(all_vectors % vectors);
}

// Chooses the rows of a tile and the columns of a panel.
void choose_tile(Job& job) {
  const bool wide =
      kWideVectors != kTileVectors && tiles_time(job.shape, kWideRows, kWideVectors) <
                                          tiles_time(job.shape, kTileRows, kTileVectors);
  job.tile_rows = wide ? kWideRows : kTileRows;
  job.panel = (wide ? kWideVectors : kTileVectors) * hn::Lanes(TileTag());
}

// Packs rows k of B [k, n] into a panel [depth][columns], with zeros past `width`.
void pack_rows(const float* HWY_RESTRICT b, size_t ldb, size_t depth, size_t width, size_t columns,
               float* HWY_RESTRICT panel) {
  const TileTag d;
  const size_t lanes = hn::Lanes(d);
  for (size_t k = 0; k < depth; ++k, b += ldb, panel += columns) {
    if (width == columns) {
      for (size_t j = 0; j < columns; j += lanes) {
        hn::Store(hn::LoadU(d, b + j), d, panel + j);
      }
      for (size_t j = 0; j < columns; j += 16) {
        hwy::Prefetch(b + columns + j);
      }
    } else {
      for (size_t j = 0; j < columns; ++j) {
        panel[j] = j < width ? b[j] : 0.0f;
      }
    }
  }
}

// Packs columns of A, stored as [k, m], into strips [depth][kStrip], with zeros past `rows`. Works
// on some rows of A at a time: a strip uses a part of a cache line of each row, and the next strips
// find these lines in the L1 cache.
template <size_t kStrip>
void pack_strips(const float* HWY_RESTRICT a, size_t lda, size_t depth, size_t rows,
                 float* HWY_RESTRICT strips) {
  constexpr size_t kTogether = 8;
  for (size_t k = 0; k < depth; k += kTogether) {
    const size_t end = HWY_MIN(k + kTogether, depth);
    for (size_t i = 0; i < rows; i += kStrip) {
      const size_t width = HWY_MIN(rows - i, kStrip);
      const float* HWY_RESTRICT in = a + k * lda + i;
      float* HWY_RESTRICT out = strips + i * depth + k * kStrip;
      if (width == kStrip) {
        for (size_t row = k; row < end; ++row, in += lda, out += kStrip) {
          std::memcpy(out, in, kStrip * sizeof(float));
        }
      } else {
        for (size_t row = k; row < end; ++row, in += lda, out += kStrip) {
          for (size_t r = 0; r < kStrip; ++r) {
            out[r] = r < width ? in[r] : 0.0f;
          }
        }
      }
    }
  }
}

// The approximate address of the quantized elements [k, k + depth) of a row, for prefetching.
void fetch_codes(const Codes& c, size_t row, size_t k, size_t depth) {
  constexpr size_t kLine = 64;
  const CodeLayout& l = c.layout;
  const std::byte* const from = c.row(row).codes;
  for (size_t at = k * l.row_bytes / l.columns; at < (k + depth) * l.row_bytes / l.columns;
       at += kLine) {
    hwy::Prefetch(from + at);
  }
}

// Packs quantized columns of B [k, n] or [n, k] into a panel. A segment of a row is too short for
// hardware prefetching.
void pack_codes(const Job& job, size_t column, size_t k, size_t depth, size_t width,
                float* HWY_RESTRICT panel) {
  const size_t columns = job.panel;
  if (!transposed_b(job.shape.layout)) {
    for (size_t i = 0; i < depth; ++i) {
      float* const row = panel + i * columns;
      decode_run(*job.options.b_codes, k + i, column, width, row);
      std::fill(row + width, row + columns, 0.0f);
    }
    return;
  }
#if HWY_TARGET != HWY_SCALAR
  static_assert(kDepth == kSpan);
  const CodeLayout& l = job.options.b_codes->layout;
  if (l.bits == 0 && has_spans(*l.format, l.columns)) {
    pack_spans(*job.options.b_codes, column, k, width, columns, panel);
    return;
  }
#endif
  constexpr size_t kMostTogether = 4;
  constexpr size_t kAhead = 16;
  alignas(64) float rows[kMostTogether * kDepth];
  const size_t together = HWY_MIN(kMostTogether, columns);  // a panel of the baseline has 2
  for (size_t j = 0; j < columns; j += together) {
    const size_t some = j < width ? HWY_MIN(width - j, together) : 0;
    for (size_t i = 0; i < some; ++i) {
      fetch_codes(*job.options.b_codes, column + j + i + kAhead, k, depth);
      decode_run(*job.options.b_codes, column + j + i, k, depth, rows + i * kDepth);
    }
    transpose(rows, kDepth, some, depth, panel + j, columns, together);
  }
}

// Dequantizes quantized rows of A in their order, [rows][depth] or [depth][rows].
void unpack_a(const Job& job, Range rows, size_t k, size_t depth, float* HWY_RESTRICT out) {
  const bool turned = transposed_a(job.shape.layout);
  const Range lines = turned ? Range{k, k + depth} : rows;
  const Range along = turned ? rows : Range{k, k + depth};
  for (size_t i = lines.begin; i < lines.end; ++i) {
    decode_run(*job.options.a_codes, i, along.begin, along.size(), out);
    out += along.size();
  }
}

// The block of A [k, m] that is packed next. Packing reads a few lines of each row, which hardware
// prefetching misses, so they are prefetched into the L2 cache while tiles are computed.
class NextBlock {
 public:
  NextBlock() = default;
  // `rows` rows of `length` floats, spread over `tiles` calls of fetch().
  NextBlock(const float* first, size_t stride, size_t rows, size_t length, size_t tiles)
      : row_(first), stride_(stride), rows_(rows), length_(length) {
    const size_t lines = rows * ((length + kLine - 1) / kLine);
    lines_ = (lines + tiles - 1) / tiles;
  }

  void fetch() {
    for (size_t i = 0; i < lines_ && rows_ > 0; ++i) {
      constexpr int kRead = 0, kIntoL2 = 2;
      __builtin_prefetch(row_ + column_, kRead, kIntoL2);
      column_ += kLine;
      if (column_ >= length_) {
        column_ = 0;
        row_ += stride_;
        --rows_;
      }
    }
  }

 private:
  static constexpr size_t kLine = 64 / sizeof(float);
  const float* row_ = nullptr;
  size_t stride_ = 0;
  size_t rows_ = 0;
  size_t length_ = 0;
  size_t lines_ = 0;
  size_t column_ = 0;
};

// The block of A after rows `here` of `rows` at k, if it is packed.
NextBlock block_behind(const Job& job, Range rows, Range here, size_t k, size_t width) {
  const GemmShape& s = job.shape;
  if (!transposed_a(s.layout) || job.options.a_codes != nullptr) {
    return {};
  }
  const bool last = here.end == rows.end;
  const size_t row = last ? rows.begin : here.end;
  const size_t next_k = last ? k + kDepth : k;
  if (next_k >= s.k) {
    return {};
  }
  const size_t tiles =
      ((here.size() + job.tile_rows - 1) / job.tile_rows) * ((width + job.panel - 1) / job.panel);
  return {job.a + next_k * s.lda + row, s.lda, HWY_MIN(kDepth, s.k - next_k),
          HWY_MIN(kRows, rows.end - row), tiles};
}

// One block of k: multiplies rows of A with the packed panels.
void multiply_panels(const Job& job, Range rows, size_t column, size_t width, size_t k,
                     size_t depth, const float* panels, float* strips, NextBlock next) {
  const GemmShape& s = job.shape;
  const size_t columns = job.panel, tile_rows = job.tile_rows;
  const bool wide = tile_rows != kTileRows;
  const size_t lanes = hn::Lanes(TileTag());
  const bool accumulate = job.options.accumulate || k > 0;
  const bool last = k + depth == s.k;
  const bool codes_a = job.options.a_codes != nullptr;
  const bool strip_a = transposed_a(s.layout) && !codes_a;
  if (codes_a) {
    unpack_a(job, rows, k, depth, strips);
  } else if (strip_a) {
    (wide ? pack_strips<kWideRows> : pack_strips<kTileRows>)(job.a + k * s.lda + rows.begin, s.lda,
                                                             depth, rows.end - rows.begin, strips);
  }
  for (size_t j = 0; j < width; j += columns) {
    const size_t tile_width = HWY_MIN(width - j, columns);
    const size_t vectors = (tile_width + lanes - 1) / lanes;
    const float* bias =
        last && job.options.bias != nullptr ? job.options.bias + column + j : nullptr;
    for (size_t i = rows.begin; i < rows.end; i += tile_rows) {
      TileOperands tile;
      if (codes_a) {
        const bool turned = transposed_a(s.layout);
        tile.a = strips + (i - rows.begin) * (turned ? 1 : depth);
        tile.a_row = turned ? 1 : depth;
        tile.a_k = turned ? rows.size() : 1;
      } else {
        tile.a = strip_a ? strips + (i - rows.begin) * depth : job.a + i * s.lda + k;
        tile.a_row = strip_a ? 1 : s.lda;
        tile.a_k = strip_a ? tile_rows : 1;
      }
      if (j == 0 && !codes_a && !strip_a && i + tile_rows < rows.end) {
        for (size_t r = 0; r < tile_rows; ++r) {
          for (size_t at = 0; at < depth; at += 16) {
            hwy::Prefetch(job.a + (i + tile_rows + r) * s.lda + k + at);
          }
        }
      }
      tile.b = panels + j * depth;
      tile.b_k = columns;
      tile.c = job.c + i * s.ldc + column + j;
      tile.c_row = s.ldc;
      next.fetch();
      (wide ? wide_tile_for : tile_for)(HWY_MIN(rows.end - i, tile_rows), vectors)(
          tile, depth, tile_width, accumulate, bias);
    }
  }
}

// Computes the part of C that a thread owns.
void multiply_part(const Job& job, Range rows, Range columns, float* scratch) {
  const GemmShape& s = job.shape;
  const size_t panel = job.panel;
  const size_t together = kColumns / panel * panel;
  for (size_t column = columns.begin; column < columns.end; column += together) {
    const size_t width = HWY_MIN(columns.end - column, together);
    for (size_t k = 0; k < s.k; k += kDepth) {
      const size_t depth = HWY_MIN(s.k - k, kDepth);
      for (size_t j = 0; j < width; j += panel) {
        const size_t panel_width = HWY_MIN(width - j, panel);
        if (job.options.b_codes != nullptr) {
          pack_codes(job, column + j, k, depth, panel_width, scratch + j * depth);
        } else if (transposed_b(s.layout)) {
          transpose(job.b + (column + j) * s.ldb + k, s.ldb, panel_width, depth,
                    scratch + j * depth, panel, panel);
        } else {
          pack_rows(job.b + k * s.ldb + column + j, s.ldb, depth, panel_width, panel,
                    scratch + j * depth);
        }
      }
      float* strips = scratch + round_up(width, panel) * depth;
      for (size_t row = rows.begin; row < rows.end; row += kRows) {
        const Range here{row, HWY_MIN(row + kRows, rows.end)};
        multiply_panels(job, here, column, width, k, depth, scratch, strips,
                        block_behind(job, rows, here, k, width));
      }
    }
  }
}

// Rows k .. k + depth of four columns of B [n, k]. Prefetches the following rows.
void take_dot_rows(const Job& job, Range columns, size_t n, size_t k, size_t depth, float* decoded,
                   DotOperands& out) {
  const GemmShape& s = job.shape;
  const bool is_codes = job.options.b_codes != nullptr;
  for (size_t j = 0; j < kDotColumns; ++j) {
    const size_t some = HWY_MIN(j, columns.end - n - 1);  // past the end: repeat the last column
    if (is_codes && some == j) {
      decode_run(*job.options.b_codes, n + j, k, depth, decoded + j * kDecoded);
    }
    out.b[j] = is_codes ? decoded + some * kDecoded : job.b + (n + some) * s.ldb + k;
  }
  constexpr size_t kAhead = 2;  // groups of four rows
  const size_t lanes = hn::Lanes(TileTag());
  out.next = nullptr;
  if (is_codes) {
    return;
  }
  if (k + depth < s.k) {
    out.next = out.b[0] + depth;
    out.next_row = s.ldb;
    out.next_vector = lanes;
  } else if (n + (kAhead + 1) * kDotColumns <= columns.end) {
    // Contiguous rows are prefetched in memory order.
    const bool together = s.ldb == s.k && k == 0;
    out.next = job.b + (n + kAhead * kDotColumns) * s.ldb;
    out.next_row = together ? lanes : s.ldb;
    out.next_vector = together ? kDotColumns * lanes : lanes;
  }
}

// One row, and quantized B [n, k] that is multiplied without dequantization. dots(first, count,
// sums) multiplies rows of B.
template <class Dots>
void code_columns(const Job& job, Range columns, const Dots& dots) {
  constexpr size_t kTogether = 64;
  for (size_t n = columns.begin; n < columns.end; n += kTogether) {
    const size_t count = HWY_MIN(columns.end - n, kTogether);
    float sums[kTogether];
    dots(n, count, sums);
    for (size_t j = 0; j < count; ++j) {
      float& c = job.c[n + j];
      const float sum = job.options.accumulate ? c + sums[j] : sums[j];
      c = job.options.bias != nullptr ? sum + job.options.bias[n + j] : sum;
    }
  }
}

// At most kMostDotRows rows and B [n, k]: each element is a dot product along k, so B needs no
// packing.
void dot_columns(const Job& job, Range rows, Range columns) {
  if (job.shape.m == 1 && job.options.b_codes != nullptr) {
    const Codes& codes = *job.options.b_codes;
    if (job.integers != nullptr) {
      const IntegerDots dots = integer_dots(codes.layout, job.options.a_of);
      return code_columns(job, columns, [&](size_t first, size_t count, float* sums) {
        dots(codes, first, count, job.integers, sums);
      });
    }
    if (const CodeDots dots = code_dots_for(codes.layout)) {
      return code_columns(job, columns, [&](size_t first, size_t count, float* sums) {
        dots_by_fours(dots, codes, first, count, job.a, sums);
      });
    }
  }
  const GemmShape& s = job.shape;
  const size_t tiles = (rows.size() + kDotRows - 1) / kDotRows;
  const size_t piece = rows.size() == 1 && job.options.b_codes == nullptr ? s.k : kDecoded;
  alignas(64) float decoded[kDotColumns * kDecoded];
  alignas(64) float sums[kMostDotRows * kDotLine];
  for (size_t line = columns.begin; line < columns.end; line += kDotLine) {
    const size_t width = HWY_MIN(columns.end - line, kDotLine);
    std::fill_n(sums, rows.size() * kDotLine, 0.0f);
    for (size_t n = line; n < line + width; n += kDotColumns) {
      for (size_t k = 0; k < s.k; k += piece) {
        const size_t depth = HWY_MIN(s.k - k, piece);
        DotOperands o;
        o.a_row = s.lda;
        o.sums_row = kDotLine;
        take_dot_rows(job, columns, n, k, depth, decoded, o);
        for (size_t i = 0; i < tiles; ++i) {
          const Range some = part(rows.size(), 1, tiles, i);
          o.a = job.a + (rows.begin + some.begin) * s.lda + k;
          o.sums = sums + some.begin * kDotLine + (n - line);
          add_dots(some.size(), o, depth);
          o.next = nullptr;
        }
      }
    }
    for (size_t r = 0; r < rows.size(); ++r) {
      float* const c = job.c + (rows.begin + r) * s.ldc + line;
      for (size_t j = 0; j < width; ++j) {
        const float sum =
            job.options.accumulate ? c[j] + sums[r * kDotLine + j] : sums[r * kDotLine + j];
        c[j] = job.options.bias != nullptr ? sum + job.options.bias[line + j] : sum;
      }
    }
  }
}

// Few rows and B [k, n]: reads whole vectors of columns in place.
void direct_columns(const Job& job, Range columns, float* scratch) {
  const GemmShape& s = job.shape;
  const size_t lanes = hn::Lanes(TileTag());
  const size_t whole = columns.begin + (columns.end - columns.begin) / lanes * lanes;
  for (size_t j = columns.begin; j < whole; j += tile_columns()) {
    const size_t width = HWY_MIN(whole - j, tile_columns());
    for (size_t k = 0; k < s.k; k += kDepth) {
      const size_t depth = HWY_MIN(s.k - k, kDepth);
      const float* bias =
          k + depth == s.k && job.options.bias != nullptr ? job.options.bias + j : nullptr;
      tile_for(s.m, width / lanes)(
          {job.a + k, s.lda, 1, job.b + k * s.ldb + j, s.ldb, job.c + j, s.ldc}, depth, width,
          job.options.accumulate || k > 0, bias);
    }
  }
  if (whole < columns.end) {
    multiply_part(job, {0, s.m}, {whole, columns.end}, scratch);
  }
}

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
namespace {

void multiply_nothing(const Job& job) {
  for (size_t i = 0; i < job.shape.m; ++i) {
    float* c = job.c + i * job.shape.ldc;
    for (size_t j = 0; j < job.shape.n; ++j) {
      const float sum = job.options.accumulate ? c[j] : 0.0f;
      c[j] = job.options.bias != nullptr ? sum + job.options.bias[j] : sum;
    }
  }
}

// With few rows, B is not packed.
bool reads_b_directly(const Job& job) {
  const GemmShape& s = job.shape;
  if (transposed_a(s.layout) || job.options.a_codes != nullptr) {
    return false;
  }
  return transposed_b(s.layout) ? s.m <= kMostDotRows
                                : s.m <= kFewRows && job.options.b_codes == nullptr;
}

void multiply_few_rows(const Job& job, Range rows, Range columns, float* scratch) {
  if (transposed_b(job.shape.layout)) {
    BOWLINE_BEST(dot_columns)(job, rows, columns);
  } else {
    BOWLINE_BEST(direct_columns)(job, columns, scratch);
  }
}

// Converts the row to integers, if the encoding of B supports integer products.
bool make_integers(const Job& job, float* row) {
  const Codes* const codes = job.options.b_codes;
  return job.shape.m == 1 && codes != nullptr && has_integer_dots(codes->layout) &&
         to_integers(codes->layout, job.options.a_of, job.a, row);
}

bool multiplies_code_rows(const Job& job) {
  const GemmShape& s = job.shape;
  const Codes* const codes = job.options.b_codes;
  static_assert(kDepth * 64 >= kCodeRowsFloats);  // the scratch of at least kDepth elements of k
  return s.m > 1 && s.layout == GemmLayout::nt && job.options.a_codes == nullptr &&
         codes != nullptr && has_code_rows(codes->layout) && are_finite(job.a, s.lda, s.m, s.k);
}

// Computes the whole product on one thread, or one part of `grid` per task.
void multiply(const Job& job, Grid grid, size_t task, float* scratch, size_t panel) {
  const GemmShape& s = job.shape;
  const Range rows = part(s.m, kTileRowsOfAll, grid.rows, task % grid.rows);
  const Range columns = part(s.n, panel, grid.columns, task / grid.rows);
  if (rows.begin == rows.end || columns.begin == columns.end) {
    return;
  }
  if (job.code_rows) {
    const GemmOptions& o = job.options;
    code_rows({job.a, s.lda, o.b_codes, o.a_of, job.c, s.ldc, o.accumulate, o.bias}, rows, columns,
              scratch);
  } else if (reads_b_directly(job)) {
    multiply_few_rows(job, rows, columns, scratch);
  } else {
    BOWLINE_BEST(multiply_part)(job, rows, columns, scratch);
  }
}

}  // namespace

size_t gemm_scratch_bytes(const GemmShape& shape, const Threads& threads, bool a_codes) {
  return thread_scratch_floats(shape, a_codes) * sizeof(float) * threads.count();
}

void gemm(Threads& threads, const GemmShape& shape, const float* a, const float* b, float* c,
          const GemmOptions& options, void* scratch) {
  Job job{shape, a, b, c, options};
  if (shape.m == 0 || shape.n == 0) {
    return;
  }
  if (shape.k == 0) {
    multiply_nothing(job);
    return;
  }
  const bool dots = reads_b_directly(job) && transposed_b(shape.layout);
  BOWLINE_BEST(choose_tile)(job);
  job.code_rows = multiplies_code_rows(job);
  const size_t panel = dots || job.code_rows ? kDotLine : job.panel;
  const Grid grid = choose_grid(shape, threads.count(), panel);
  const size_t floats = thread_scratch_floats(shape, options.a_codes != nullptr);
  if (dots && make_integers(job, static_cast<float*>(scratch))) {
    job.integers = static_cast<float*>(scratch);
  }
  threads.parallel_for(grid.rows * grid.columns, [&](size_t task, size_t thread) {
    multiply(job, grid, task, static_cast<float*>(scratch) + thread * floats, panel);
  });
}

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
