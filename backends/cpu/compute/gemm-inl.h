// The tile kernel of matrix products and attention. Included once per instruction set.
//
//   C[r, j] = sum over k of A[r, k] * B[k, j]   (+ C[r, j])   (+ bias[j])
//   r < kRows, j < kVectors * lanes
//
// A is broadcast element by element through two strides, so it may be stored in either order. The
// lanes run along B and C.
#if defined(BOWLINE_CPU_GEMM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BOWLINE_CPU_GEMM_INL_H
#undef BOWLINE_CPU_GEMM_INL_H
#else
#define BOWLINE_CPU_GEMM_INL_H
#endif

#include <cstddef>

#include "compute/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kTileRows = 6;
// Sums in registers: 6 x 4 vectors with 32 registers, 6 x 2 with 16.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr size_t kTileVectors = 4;
#else
constexpr size_t kTileVectors = 2;
#endif

using TileTag = hn::ScalableTag<float>;
inline size_t tile_columns() { return kTileVectors * hn::Lanes(TileTag()); }

struct TileOperands {
  const float* a;
  size_t a_row;  // elements from A[r, k] to A[r + 1, k]
  size_t a_k;    // elements from A[r, k] to A[r, k + 1]
  const float* b;
  size_t b_k;  // elements from B[k, j] to B[k + 1, j]; whole vectors are read
  float* c;
  size_t c_row;
};

template <size_t kRows, size_t kVectors>
HWY_INLINE void multiply_tile(const TileOperands& o, size_t depth, size_t columns, bool accumulate,
                              const float* bias) {
  const TileTag d;
  using V = hn::Vec<TileTag>;
  const size_t lanes = hn::Lanes(d);
  V sum[kRows][kVectors];
  HWY_UNROLL(6)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (size_t v = 0; v < kVectors; ++v) {
      sum[r][v] = hn::Zero(d);
    }
  }
  // Two row pointers reach all six rows with addressing modes, without arithmetic.
  const float* HWY_RESTRICT a0 = o.a;
  const float* HWY_RESTRICT a3 = kRows > 3 ? o.a + 3 * o.a_row : o.a;
  const float* HWY_RESTRICT b = o.b;
  const size_t a_row = o.a_row;
  // The loop body is short: without unrolling, the counter and the jump delay the multiply-adds.
  HWY_UNROLL(4)
  for (size_t k = 0; k < depth; ++k) {
    V bk[kVectors];
    HWY_UNROLL(4)
    for (size_t v = 0; v < kVectors; ++v) {
      bk[v] = hn::LoadU(d, b + v * lanes);
    }
    HWY_UNROLL(6)
    for (size_t r = 0; r < kRows; ++r) {
      const V ar = hn::Set(d, r < 3 ? a0[r * a_row] : a3[(r - 3) * a_row]);
      HWY_UNROLL(4)
      for (size_t v = 0; v < kVectors; ++v) {
        sum[r][v] = hn::MulAdd(ar, bk[v], sum[r][v]);
      }
    }
    a0 += o.a_k;
    a3 += o.a_k;
    b += o.b_k;
  }
  // Only the last vector can be partial.
  const size_t rest = columns - (kVectors - 1) * lanes;
  const PartialVector part(rest);
  const bool whole = rest == lanes;
  HWY_UNROLL(4)
  for (size_t v = 0; v < kVectors; ++v) {
    const bool partial = v == kVectors - 1 && !whole;
    if (bias != nullptr) {
      const V add = partial ? part.load(bias + v * lanes) : hn::LoadU(d, bias + v * lanes);
      HWY_UNROLL(6)
      for (size_t r = 0; r < kRows; ++r) {
        sum[r][v] = hn::Add(sum[r][v], add);
      }
    }
    HWY_UNROLL(6)
    for (size_t r = 0; r < kRows; ++r) {
      float* HWY_RESTRICT c = o.c + r * o.c_row + v * lanes;
      if (partial) {
        if (accumulate) {
          sum[r][v] = hn::Add(part.load(c), sum[r][v]);
        }
        part.store(sum[r][v], c);
      } else {
        if (accumulate) {
          sum[r][v] = hn::Add(hn::LoadU(d, c), sum[r][v]);
        }
        hn::StoreU(sum[r][v], d, c);
      }
    }
  }
}

using TileFunction = void (*)(const TileOperands&, size_t depth, size_t columns, bool accumulate,
                              const float* bias);

template <size_t kRows, size_t kVectors>
HWY_NOINLINE void tile_function(const TileOperands& o, size_t depth, size_t columns,
                                bool accumulate, const float* bias) {
  multiply_tile<kRows, kVectors>(o, depth, columns, accumulate, bias);
}

// The tile function for 1 .. kTileRows rows and 1 .. kTileVectors vectors.
inline TileFunction tile_for(size_t rows, size_t vectors) {
#define BOWLINE_TILE_ROW(r)                                                       \
  {                                                                               \
    tile_function<r, 1>, tile_function<r, 2>, tile_function<r, kTileVectors - 1>, \
        tile_function<r, kTileVectors>                                            \
  }
  static constexpr TileFunction kTiles[kTileRows][4] = {BOWLINE_TILE_ROW(1), BOWLINE_TILE_ROW(2),
                                                        BOWLINE_TILE_ROW(3), BOWLINE_TILE_ROW(4),
                                                        BOWLINE_TILE_ROW(5), BOWLINE_TILE_ROW(6)};
#undef BOWLINE_TILE_ROW
  return kTiles[rows - 1][vectors - 1];
}

// out[k, j] = in[j, k] for j < rows, k < columns, and zeros for rows <= j < padded_rows.
inline void transpose(const float* HWY_RESTRICT in, size_t in_row, size_t rows, size_t columns,
                      float* HWY_RESTRICT out, size_t out_row, size_t padded_rows) {
#if HWY_TARGET == HWY_SCALAR
  const size_t whole = 0;
  const size_t deep = 0;
#else
  // Squares of 4 x 4 in registers.
  const hn::FixedTag<float, 4> d;
  const hn::Repartition<double, decltype(d)> dd;
  const size_t whole = rows / 4 * 4;
  const size_t deep = columns / 4 * 4;
  for (size_t j = 0; j < whole; j += 4) {
    const float* HWY_RESTRICT row = in + j * in_row;
    float* HWY_RESTRICT to = out + j;
    for (size_t k = 0; k < deep; k += 4) {
      const auto r0 = hn::LoadU(d, row + k);
      const auto r1 = hn::LoadU(d, row + in_row + k);
      const auto r2 = hn::LoadU(d, row + 2 * in_row + k);
      const auto r3 = hn::LoadU(d, row + 3 * in_row + k);
      const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1));
      const auto high01 = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1));
      const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3));
      const auto high23 = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, low01, low23)), d, to + k * out_row);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23)), d, to + (k + 1) * out_row);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, high01, high23)), d,
                 to + (k + 2) * out_row);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23)), d,
                 to + (k + 3) * out_row);
    }
  }
#endif
  for (size_t j = 0; j < padded_rows; ++j) {
    for (size_t k = j < whole ? deep : 0; k < columns; ++k) {
      out[k * out_row + j] = j < rows ? in[j * in_row + k] : 0.0f;
    }
  }
}

// C [rows, columns] of any size, tile by tile. B has whole vectors of columns; the caller pads its
// rows.
inline void multiply_block(const TileOperands& o, size_t rows, size_t depth, size_t columns,
                           bool accumulate) {
  const size_t lanes = hn::Lanes(TileTag());
  for (size_t j = 0; j < columns; j += tile_columns()) {
    const size_t width = HWY_MIN(columns - j, tile_columns());
    const size_t vectors = (width + lanes - 1) / lanes;
    for (size_t i = 0; i < rows; i += kTileRows) {
      TileOperands tile = o;
      tile.a += i * o.a_row;
      tile.b += j;
      tile.c += i * o.c_row + j;
      tile_for(HWY_MIN(rows - i, kTileRows), vectors)(tile, depth, width, accumulate, nullptr);
    }
  }
}

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
