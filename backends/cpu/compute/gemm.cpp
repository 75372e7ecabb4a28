// See gemm.h. Blocks of B are packed into panels as wide as a tile, so that a panel stays in the L1
// cache while the rows of A pass by; A is read where it lies unless it is stored transposed.
#include "compute/gemm.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "compute/gemm_grid.h"
#include "compute/targets.h"
#include "core/checked.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/gemm.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "compute/gemm-inl.h"
#include "compute/codes-inl.h"
// clang-format on

#ifndef BOWLINE_CPU_GEMM_ONCE
#define BOWLINE_CPU_GEMM_ONCE
namespace bowline::cpu {
namespace {

// Depth of a block of k: fixed, because it decides the order of the sum.
constexpr size_t kDepth = 256;
// Columns of B and rows of A that a thread packs at a time: 256 x 512 floats are half of a 1 MiB L2
// cache.
constexpr size_t kColumns = 512;
constexpr size_t kRows = 96;
// Rows of A for which dot products with rows of codes are faster than tiles: decoding costs the same.
constexpr size_t kFewRowsOfCodes = 16;
// Elements of a row of codes that are decoded at a time, a quarter of the L1 cache.
constexpr size_t kDecoded = 2048;

struct Job {
  GemmShape shape;
  const float* a;
  const float* b;
  float* c;
  GemmOptions options;
};

// Floats of scratch of one thread. The widest panel of any instruction set has 64 columns.
size_t thread_scratch_floats(const GemmShape& s, bool a_codes) {
  const size_t depth = std::min(s.k, kDepth);
  const size_t b = depth * std::min(round_up(s.n, 64), kColumns);
  const size_t a =
      transposed_a(s.layout) || a_codes ? depth * std::min(round_up(s.m, 6), kRows) : 0;
  return round_up(a + b + 16, 16);
}

}  // namespace
}  // namespace bowline::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace bowline::cpu {
namespace HWY_NAMESPACE {

// Rows k of B [k, n] to a panel [depth][tile_columns], zeros beyond `width`.
void pack_rows(const float* HWY_RESTRICT b, size_t ldb, size_t depth, size_t width,
               float* HWY_RESTRICT panel) {
  const TileTag d;
  const size_t lanes = hn::Lanes(d);
  const size_t columns = tile_columns();
  for (size_t k = 0; k < depth; ++k, b += ldb, panel += columns) {
    if (width == columns) {
      for (size_t j = 0; j < columns; j += lanes) {
        hn::Store(hn::LoadU(d, b + j), d, panel + j);
      }
    } else {
      for (size_t j = 0; j < columns; ++j) {
        panel[j] = j < width ? b[j] : 0.0f;
      }
    }
  }
}

// Columns of A stored as [k, m] to strips [depth][kTileRows], zeros beyond `rows`.
void pack_strips(const float* HWY_RESTRICT a, size_t lda, size_t depth, size_t rows,
                 float* HWY_RESTRICT strips) {
  for (size_t i = 0; i < rows; i += kTileRows, strips += depth * kTileRows) {
    const size_t width = HWY_MIN(rows - i, kTileRows);
    const float* HWY_RESTRICT in = a + i;
    float* HWY_RESTRICT out = strips;
    if (width == kTileRows) {
      for (size_t k = 0; k < depth; ++k, in += lda, out += kTileRows) {
        std::memcpy(out, in, kTileRows * sizeof(float));
      }
    } else {
      for (size_t k = 0; k < depth; ++k, in += lda, out += kTileRows) {
        for (size_t r = 0; r < kTileRows; ++r) {
          out[r] = r < width ? in[r] : 0.0f;
        }
      }
    }
  }
}

// Columns of B [k, n] or [n, k] that are codes, to a panel.
void pack_codes(const Job& job, size_t column, size_t k, size_t depth, size_t width,
                float* HWY_RESTRICT panel) {
  const size_t columns = tile_columns();
  if (!transposed_b(job.shape.layout)) {
    for (size_t i = 0; i < depth; ++i) {
      float* const row = panel + i * columns;
      decode_run(*job.options.b_codes, k + i, column, width, row);
      std::fill(row + width, row + columns, 0.0f);
    }
    return;
  }
  constexpr size_t kTogether = 4;
  alignas(64) float rows[kTogether * kDepth];
  for (size_t j = 0; j < columns; j += kTogether) {
    const size_t some = j < width ? HWY_MIN(width - j, kTogether) : 0;
    for (size_t i = 0; i < some; ++i) {
      decode_run(*job.options.b_codes, column + j + i, k, depth, rows + i * kDepth);
    }
    transpose(rows, kDepth, some, depth, panel + j, columns, kTogether);
  }
}

// Rows of A that are codes: as they lie, [rows][depth] or [depth][rows].
void unpack_a(const Job& job, Range rows, size_t k, size_t depth, float* HWY_RESTRICT out) {
  const bool turned = transposed_a(job.shape.layout);
  const Range lines = turned ? Range{k, k + depth} : rows;
  const Range along = turned ? rows : Range{k, k + depth};
  for (size_t i = lines.begin; i < lines.end; ++i) {
    decode_run(*job.options.a_codes, i, along.begin, along.size(), out);
    out += along.size();
  }
}

// One block of k: rows of A against the packed panels.
void multiply_panels(const Job& job, Range rows, size_t column, size_t width, size_t k,
                     size_t depth, const float* panels, float* strips) {
  const GemmShape& s = job.shape;
  const size_t columns = tile_columns();
  const size_t lanes = hn::Lanes(TileTag());
  const bool accumulate = job.options.accumulate || k > 0;
  const bool last = k + depth == s.k;
  const bool codes_a = job.options.a_codes != nullptr;
  const bool strip_a = transposed_a(s.layout) && !codes_a;
  if (codes_a) {
    unpack_a(job, rows, k, depth, strips);
  } else if (strip_a) {
    pack_strips(job.a + k * s.lda + rows.begin, s.lda, depth, rows.end - rows.begin, strips);
  }
  for (size_t j = 0; j < width; j += columns) {
    const size_t tile_width = HWY_MIN(width - j, columns);
    const size_t vectors = (tile_width + lanes - 1) / lanes;
    const float* bias =
        last && job.options.bias != nullptr ? job.options.bias + column + j : nullptr;
    for (size_t i = rows.begin; i < rows.end; i += kTileRows) {
      TileOperands tile;
      if (codes_a) {
        const bool turned = transposed_a(s.layout);
        tile.a = strips + (i - rows.begin) * (turned ? 1 : depth);
        tile.a_row = turned ? 1 : depth;
        tile.a_k = turned ? rows.size() : 1;
      } else {
        tile.a = strip_a ? strips + (i - rows.begin) * depth : job.a + i * s.lda + k;
        tile.a_row = strip_a ? 1 : s.lda;
        tile.a_k = strip_a ? kTileRows : 1;
      }
      tile.b = panels + j * depth;
      tile.b_k = columns;
      tile.c = job.c + i * s.ldc + column + j;
      tile.c_row = s.ldc;
      tile_for(HWY_MIN(rows.end - i, kTileRows), vectors)(tile, depth, tile_width, accumulate,
                                                          bias);
    }
  }
}

// The part of C that one thread owns.
void multiply_part(const Job& job, Range rows, Range columns, float* scratch) {
  const GemmShape& s = job.shape;
  const size_t panel = tile_columns();
  for (size_t column = columns.begin; column < columns.end; column += kColumns) {
    const size_t width = HWY_MIN(columns.end - column, kColumns);
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
          pack_rows(job.b + k * s.ldb + column + j, s.ldb, depth, panel_width, scratch + j * depth);
        }
      }
      float* strips = scratch + round_up(width, panel) * depth;
      const bool packs_a = transposed_a(s.layout) || job.options.a_codes != nullptr;
      const size_t row_block = packs_a ? kRows : rows.end - rows.begin;
      for (size_t row = rows.begin; row < rows.end; row += row_block) {
        multiply_panels(job, {row, HWY_MIN(row + row_block, rows.end)}, column, width, k, depth,
                        scratch, strips);
      }
    }
  }
}

// Few rows, B [n, k]: each element is a dot product along k. `b` holds the elements `deep` of row n of B; what is in front of them
// is added already.
template <size_t kRowsAtOnce>
void dot_rows(const Job& job, const float* HWY_RESTRICT b, Range deep, size_t row, size_t n) {
  const TileTag d;
  const size_t lanes = hn::Lanes(d);
  const GemmShape& s = job.shape;
  hn::Vec<TileTag> sum[kRowsAtOnce][2];
  HWY_UNROLL(6)
  for (size_t r = 0; r < kRowsAtOnce; ++r) {
    sum[r][0] = hn::Zero(d);
    sum[r][1] = hn::Zero(d);
  }
  size_t k = 0;
  for (; k + 2 * lanes <= deep.size(); k += 2 * lanes) {
    const auto b0 = hn::LoadU(d, b + k);
    const auto b1 = hn::LoadU(d, b + k + lanes);
    HWY_UNROLL(6)
    for (size_t r = 0; r < kRowsAtOnce; ++r) {
      const float* a = job.a + (row + r) * s.lda + deep.begin + k;
      sum[r][0] = hn::MulAdd(hn::LoadU(d, a), b0, sum[r][0]);
      sum[r][1] = hn::MulAdd(hn::LoadU(d, a + lanes), b1, sum[r][1]);
    }
  }
  HWY_UNROLL(6)
  for (size_t r = 0; r < kRowsAtOnce; ++r) {
    float out = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum[r][0], sum[r][1])));
    const float* a = job.a + (row + r) * s.lda + deep.begin;
    for (size_t i = k; i < deep.size(); ++i) {
      out += a[i] * b[i];
    }
    float* c = job.c + (row + r) * s.ldc + n;
    out = job.options.accumulate || deep.begin > 0 ? *c + out : out;
    *c = job.options.bias != nullptr && deep.end == s.k ? out + job.options.bias[n] : out;
  }
}

void dot_all_rows(const Job& job, const float* b, Range deep, size_t n) {
  static constexpr void (*kDots[kFewRows])(const Job&, const float*, Range, size_t, size_t) = {
      dot_rows<1>, dot_rows<2>, dot_rows<3>, dot_rows<4>, dot_rows<5>, dot_rows<6>};
  for (size_t row = 0; row < job.shape.m; row += kFewRows) {
    kDots[HWY_MIN(job.shape.m - row, kFewRows) - 1](job, b, deep, row, n);
  }
}

void dot_columns(const Job& job, Range columns) {
  const size_t k = job.shape.k;
  if (job.options.b_codes == nullptr) {
    for (size_t n = columns.begin; n < columns.end; ++n) {
      dot_all_rows(job, job.b + n * job.shape.ldb, {0, k}, n);
    }
    return;
  }
  alignas(64) float row[kDecoded];
  for (size_t n = columns.begin; n < columns.end; ++n) {
    for (size_t begin = 0; begin < k; begin += kDecoded) {
      const Range deep{begin, HWY_MIN(begin + kDecoded, k)};
      decode_run(*job.options.b_codes, n, deep.begin, deep.size(), row);
      dot_all_rows(job, row, deep, n);
    }
  }
}

// Few rows, B [k, n]: whole vectors of columns are read where they lie.
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

size_t panel_columns() { return tile_columns(); }

}  // namespace HWY_NAMESPACE
}  // namespace bowline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::cpu {
namespace {

HWY_EXPORT(multiply_part);
HWY_EXPORT(dot_columns);
HWY_EXPORT(direct_columns);
HWY_EXPORT(panel_columns);

void multiply_nothing(const Job& job) {
  for (size_t i = 0; i < job.shape.m; ++i) {
    float* c = job.c + i * job.shape.ldc;
    for (size_t j = 0; j < job.shape.n; ++j) {
      const float sum = job.options.accumulate ? c[j] : 0.0f;
      c[j] = job.options.bias != nullptr ? sum + job.options.bias[j] : sum;
    }
  }
}

// Few rows: B is not packed.
bool reads_b_directly(const Job& job) {
  const GemmShape& s = job.shape;
  if (transposed_a(s.layout) || job.options.a_codes != nullptr) {
    return false;
  }
  return job.options.b_codes == nullptr ? s.m <= kFewRows
                                        : s.m <= kFewRowsOfCodes && transposed_b(s.layout);
}

void multiply_few_rows(const Job& job, Range columns, float* scratch) {
  if (transposed_b(job.shape.layout)) {
    HWY_DYNAMIC_DISPATCH(dot_columns)(job, columns);
  } else {
    HWY_DYNAMIC_DISPATCH(direct_columns)(job, columns, scratch);
  }
}

// The whole product on one thread, or cut by `grid` with one part per task.
void multiply(const Job& job, Grid grid, size_t task, float* scratch, size_t panel) {
  const GemmShape& s = job.shape;
  const Range rows = part(s.m, kTileRowsOfAll, grid.rows, task % grid.rows);
  const Range columns = part(s.n, panel, grid.columns, task / grid.rows);
  if (rows.begin == rows.end || columns.begin == columns.end) {
    return;
  }
  if (reads_b_directly(job)) {
    multiply_few_rows(job, columns, scratch);
  } else {
    HWY_DYNAMIC_DISPATCH(multiply_part)(job, rows, columns, scratch);
  }
}

}  // namespace

size_t gemm_scratch_bytes(const GemmShape& shape, const Threads& threads, bool a_codes) {
  return thread_scratch_floats(shape, a_codes) * sizeof(float) * threads.count();
}

void gemm(Threads& threads, const GemmShape& shape, const float* a, const float* b, float* c,
          const GemmOptions& options, void* scratch) {
  const Job job{shape, a, b, c, options};
  if (shape.m == 0 || shape.n == 0) {
    return;
  }
  if (shape.k == 0) {
    multiply_nothing(job);
    return;
  }
  const size_t panel = HWY_DYNAMIC_DISPATCH(panel_columns)();
  const Grid grid = choose_grid(shape, threads.count(), panel);
  const size_t floats = thread_scratch_floats(shape, options.a_codes != nullptr);
  threads.parallel_for(grid.rows * grid.columns, [&](size_t task, size_t thread) {
    multiply(job, grid, task, static_cast<float*>(scratch) + thread * floats, panel);
  });
}

void gemm_batched(Threads& threads, const GemmShape& shape, size_t batch, const float* a,
                  size_t stride_a, const float* b, size_t stride_b, float* c, size_t stride_c,
                  const GemmOptions& options, void* scratch) {
  if (batch < threads.count() || shape.m == 0 || shape.n == 0 || shape.k == 0) {
    for (size_t i = 0; i < batch; ++i) {
      gemm(threads, shape, a + i * stride_a, b + i * stride_b, c + i * stride_c, options, scratch);
    }
    return;
  }
  const size_t panel = HWY_DYNAMIC_DISPATCH(panel_columns)();
  const size_t floats = thread_scratch_floats(shape, options.a_codes != nullptr);
  threads.parallel_for(batch, [&](size_t i, size_t thread) {
    const Job job{shape, a + i * stride_a, b + i * stride_b, c + i * stride_c, options};
    multiply(job, Grid{}, 0, static_cast<float*>(scratch) + thread * floats, panel);
  });
}

}  // namespace bowline::cpu
#endif  // HWY_ONCE
