// Products of bf16 with VDPBF16PS. A word of k holds two elements; A is broadcast, and B runs along
// the lanes. gemm16.h describes the rounding of the instruction (Intel 64 and IA-32 Architectures
// Software Developer's Manual, volume 2, VDPBF16PS).
#include "compute/arm_extensions.h"
#include "compute/gemm16_dots.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <algorithm>
#include <cstring>

#include "base/float16.h"
#include "compute/x86.h"

#define BOWLINE_BF16 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace bowline::detail::cpu {
namespace {

constexpr size_t kTileRows = kTileRowsOfAll;
constexpr size_t kLanes = 16;
constexpr size_t kTileVectors = 4;
constexpr size_t kTileColumns = kLanes * kTileVectors;
constexpr size_t kDepth = 2 * kWords16;

struct Tile {
  const uint16_t* a;
  size_t a_row;   // elements from one row to the next
  size_t a_word;  // elements from one word of k to the next
  const uint32_t* b;
  size_t words;
  bool half_word;  // then half a word of A
  float* sums;     // (optional) sums of the previous blocks
  size_t sums_row;
  bool add;     // add to `sums`
  uint16_t* c;  // null: keep the sums
  size_t c_row;
  const uint16_t* bias;  // may be null
  size_t columns;
  std::atomic<bool>* nan;
};

BOWLINE_BF16 inline __m512i broadcast_word(const uint16_t* at) {
  uint32_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return _mm512_set1_epi32(static_cast<int>(word));
}

BOWLINE_BF16 inline __m512 widen(__m256i h) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

BOWLINE_BF16 inline __m512 add_products(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// The first n of 16 or 32 lanes.
constexpr __mmask16 first16(size_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xFFFFu : (1u << n) - 1);
}
constexpr __mmask32 first32(size_t n) { return n >= 32 ? 0xFFFFFFFFu : (uint32_t{1} << n) - 1; }

template <size_t kRows, size_t kVectors>
BOWLINE_BF16 void multiply_tile(const Tile& t) {
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 6
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (size_t v = 0; v < kVectors; ++v) {
      sum[r][v] = _mm512_setzero_ps();
    }
  }
  // Two row pointers reach all six rows with addressing modes, without arithmetic.
  const uint16_t* a0 = t.a;
  const uint16_t* a3 = kRows > 3 ? t.a + 3 * t.a_row : t.a;
  const uint32_t* b = t.b;
  const size_t a_row = t.a_row;
  for (size_t k = 0; k < t.words; ++k) {
    __m512i bk[kVectors];
#pragma GCC unroll 4
    for (size_t v = 0; v < kVectors; ++v) {
      bk[v] = _mm512_loadu_si512(b + v * kLanes);
    }
#pragma GCC unroll 6
    for (size_t r = 0; r < kRows; ++r) {
      const __m512i ar = broadcast_word(r < 3 ? a0 + r * a_row : a3 + (r - 3) * a_row);
#pragma GCC unroll 4
      for (size_t v = 0; v < kVectors; ++v) {
        sum[r][v] = add_products(sum[r][v], ar, bk[v]);
      }
    }
    a0 += t.a_word;
    a3 += t.a_word;
    b += kTileColumns;
  }
  if (t.half_word) {
#pragma GCC unroll 6
    for (size_t r = 0; r < kRows; ++r) {
      const uint16_t last = r < 3 ? a0[r * a_row] : a3[(r - 3) * a_row];
      const __m512i ar = _mm512_set1_epi32(last);
#pragma GCC unroll 4
      for (size_t v = 0; v < kVectors; ++v) {
        sum[r][v] = add_products(sum[r][v], ar, _mm512_loadu_si512(b + v * kLanes));
      }
    }
  }
  __mmask16 nan = 0;
#pragma GCC unroll 4
  for (size_t v = 0; v < kVectors; ++v) {
    const __mmask16 part = first16(t.columns - v * kLanes);
    const __m512 bias = t.bias == nullptr
                            ? _mm512_setzero_ps()
                            : widen(_mm256_maskz_loadu_epi16(part, t.bias + v * kLanes));
#pragma GCC unroll 6
    for (size_t r = 0; r < kRows; ++r) {
      float* sums = t.sums + r * t.sums_row + v * kLanes;
      __m512 out = sum[r][v];
      if (t.add) {
        out = _mm512_add_ps(_mm512_maskz_loadu_ps(part, sums), out);
      }
      if (t.c == nullptr) {
        _mm512_mask_storeu_ps(sums, part, out);
        continue;
      }
      if (t.bias != nullptr) {
        out = _mm512_add_ps(out, bias);
      }
      nan |= _mm512_mask_cmp_ps_mask(part, out, out, _CMP_UNORD_Q);
      _mm256_mask_storeu_epi16(t.c + r * t.c_row + v * kLanes, part,
                               reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(out)));
    }
  }
  if (nan != 0) {
    t.nan->store(true, std::memory_order_relaxed);
  }
}

using TileFunction = void (*)(const Tile&);

TileFunction tile_for(size_t rows, size_t vectors) {
#define BOWLINE_TILE_ROW(r) \
  { multiply_tile<r, 1>, multiply_tile<r, 2>, multiply_tile<r, 3>, multiply_tile<r, 4> }
  static constexpr TileFunction kTiles[kTileRows][kTileVectors] = {
      BOWLINE_TILE_ROW(1), BOWLINE_TILE_ROW(2), BOWLINE_TILE_ROW(3),
      BOWLINE_TILE_ROW(4), BOWLINE_TILE_ROW(5), BOWLINE_TILE_ROW(6)};
#undef BOWLINE_TILE_ROW
  return kTiles[rows - 1][vectors - 1];
}

// Packs rows k and k + 1 of B [k, n] into one word per column, with zeros for a missing second row
// and up to a whole vector.
BOWLINE_BF16 void pack_rows(const uint16_t* b, size_t ldb, size_t depth, size_t width,
                            uint32_t* panel) {
  for (size_t k = 0; k < depth; k += 2, b += 2 * ldb, panel += kTileColumns) {
    for (size_t j = 0; j < width; j += kLanes) {
      const __mmask16 part = first16(width - j);
      __m512i word = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(part, b + j));
      if (k + 1 < depth) {
        const __m256i second = _mm256_maskz_loadu_epi16(part, b + ldb + j);
        word = _mm512_or_si512(word, _mm512_slli_epi32(_mm512_cvtepu16_epi32(second), 16));
      }
      _mm512_storeu_si512(panel + j, word);
    }
  }
}

// out[i] = lane i of each in.
BOWLINE_BF16 inline void transpose_words(__m512i (&x)[16]) {
  __m512i y[16];
#pragma GCC unroll 8
  for (size_t i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < 16; i += 4) {  // x[i + c]: column c of each quarter, of four rows
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
#pragma GCC unroll 4
  for (size_t c = 0; c < 4; ++c) {
    const __m512i low01 = _mm512_shuffle_i32x4(x[c], x[4 + c], 0x88);
    const __m512i high01 = _mm512_shuffle_i32x4(x[c], x[4 + c], 0xDD);
    const __m512i low23 = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0x88);
    const __m512i high23 = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0xDD);
    y[c] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    y[8 + c] = _mm512_shuffle_i32x4(low01, low23, 0xDD);
    y[4 + c] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    y[12 + c] = _mm512_shuffle_i32x4(high01, high23, 0xDD);
  }
#pragma GCC unroll 16
  for (size_t i = 0; i < 16; ++i) {
    x[i] = y[i];
  }
}

// Packs rows of B [n, k], which already consist of words, with zeros past `depth` and up to a whole
// vector.
BOWLINE_BF16 void pack_columns(const uint16_t* b, size_t ldb, size_t depth, size_t width,
                               uint32_t* panel) {
  for (size_t j = 0; j < width; j += kLanes) {
    for (size_t k = 0; k < depth; k += 2 * kLanes) {
      const __mmask32 part = first32(depth - k);
      __m512i x[kLanes];
#pragma GCC unroll 16
      for (size_t i = 0; i < kLanes; ++i) {
        const bool there = j + i < width;
        x[i] = _mm512_maskz_loadu_epi16(there ? part : __mmask32{0},
                                        there ? b + (j + i) * ldb + k : b);
      }
      transpose_words(x);
      uint32_t* out = panel + k / 2 * kTileColumns + j;
#pragma GCC unroll 16
      for (size_t i = 0; i < kLanes; ++i) {
        if (k + 2 * i < depth) {
          _mm512_storeu_si512(out + i * kTileColumns, x[i]);
        }
      }
    }
  }
}

void pack(const Job16& job, Range columns, Range k, uint32_t* panels) {
  const GemmShape& s = job.shape;
  const size_t words = (k.size() + 1) / 2;
  for (size_t j = columns.begin; j < columns.end; j += kTileColumns) {
    const size_t width = std::min(columns.end - j, kTileColumns);
    if (transposed_b(s.layout)) {
      pack_columns(job.b + j * s.ldb + k.begin, s.ldb, k.size(), width, panels);
    } else {
      pack_rows(job.b + k.begin * s.ldb + j, s.ldb, k.size(), width, panels);
    }
    panels += words * kTileColumns;
  }
}

// Packs rows k and k + 1 of A [k, m] into words, in rows of `row` words, with zeros for a missing
// second row.
BOWLINE_BF16 void pack_words(const uint16_t* a, size_t lda, size_t depth, size_t rows,
                             uint32_t* words, size_t row) {
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8,
                                       39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  for (size_t k = 0; k < depth; k += 2, a += 2 * lda, words += row) {
    for (size_t i = 0; i < rows; i += 2 * kLanes) {
      const __mmask32 part = first32(rows - i);
      const __m512i first = _mm512_maskz_loadu_epi16(part, a + i);
      const __m512i second = _mm512_maskz_loadu_epi16(k + 1 < depth ? part : __mmask32{0},
                                                      k + 1 < depth ? a + lda + i : a);
      _mm512_storeu_si512(words + i, _mm512_permutex2var_epi16(first, low, second));
      _mm512_storeu_si512(words + i + kLanes, _mm512_permutex2var_epi16(first, high, second));
    }
  }
}

void multiply_rows(const Job16& job, Range rows, Range columns, Range k, const uint32_t* panels,
                   const uint32_t* packed, float* sums) {
  const GemmShape& s = job.shape;
  const bool last = k.end == s.k;
  const size_t words = (k.size() + 1) / 2;
  Tile t;
  t.a_row = packed != nullptr ? 2 : s.lda;
  t.a_word = packed != nullptr ? 2 * job.packed_row : 2;
  t.half_word = packed == nullptr && k.size() % 2 != 0;
  t.words = words - (t.half_word ? 1 : 0);
  t.add = k.begin > 0;
  t.c_row = s.ldc;
  t.sums_row = job.sums_row;
  t.nan = job.nan;
  for (size_t j = columns.begin; j < columns.end; j += kTileColumns) {
    t.columns = std::min(columns.end - j, kTileColumns);
    t.b = panels + (j - columns.begin) * words;
    t.bias = job.bias == nullptr ? nullptr : job.bias + j;
    const size_t vectors = (t.columns + kLanes - 1) / kLanes;
    for (size_t i = rows.begin; i < rows.end; i += kTileRows) {
      t.a = packed != nullptr ? reinterpret_cast<const uint16_t*>(packed + (i - rows.begin))
                              : job.a + i * s.lda + k.begin;
      t.sums = sums + (i - rows.begin) * job.sums_row + (j - columns.begin);
      t.c = last ? job.c + i * s.ldc + j : nullptr;
      tile_for(std::min(rows.end - i, kTileRows), vectors)(t);
    }
  }
}

void multiply(const Job16& job, Range rows, Range columns, Range k, const uint32_t* panels,
              uint32_t* packed, float* sums) {
  if (!transposed_a(job.shape.layout)) {
    multiply_rows(job, rows, columns, k, panels, nullptr, sums);
    return;
  }
  for (size_t i = rows.begin; i < rows.end; i += kPacked16) {
    const Range some{i, std::min(rows.end, i + kPacked16)};
    pack_words(job.a + k.begin * job.shape.lda + i, job.shape.lda, k.size(), some.size(), packed,
               job.packed_row);
    multiply_rows(job, some, columns, k, panels, packed, sums + (i - rows.begin) * job.sums_row);
  }
}

BOWLINE_BF16 inline float sum_of_lanes(__m512 x) {
  float lanes[kLanes];
  _mm512_storeu_ps(lanes, x);
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) {
      lanes[i] += lanes[i + half];
    }
  }
  return lanes[0];
}

// The columns of dots().
struct DotColumns {
  template <size_t kRows, size_t kTogether>
  BOWLINE_BF16 static void multiply(const Job16& job, size_t n) {
    const GemmShape& s = job.shape;
    __m512 sum[kRows][kTogether];
#pragma GCC unroll 6
    for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (size_t j = 0; j < kTogether; ++j) {
        sum[r][j] = _mm512_setzero_ps();
      }
    }
    for (size_t k = 0; k < s.k; k += 2 * kLanes) {
      const __mmask32 part = first32(s.k - k);
      __m512i b[kTogether];
#pragma GCC unroll 4
      for (size_t j = 0; j < kTogether; ++j) {
        b[j] = _mm512_maskz_loadu_epi16(part, job.b + (n + j) * s.ldb + k);
      }
#pragma GCC unroll 6
      for (size_t r = 0; r < kRows; ++r) {
        const __m512i a = _mm512_maskz_loadu_epi16(part, job.a + r * s.lda + k);
#pragma GCC unroll 4
        for (size_t j = 0; j < kTogether; ++j) {
          sum[r][j] = add_products(sum[r][j], a, b[j]);
        }
      }
    }
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t j = 0; j < kTogether; ++j) {
        write_dot(job, r, n + j, sum_of_lanes(sum[r][j]));
      }
    }
  }
};

}  // namespace

const Blocks16* bf16_blocks() {
  static constexpr Blocks16 kBlocks{kDepth, kTileColumns, pack, multiply,
                                    dots_of_columns<DotColumns>};
  static const bool there =
      __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return there ? &kBlocks : nullptr;
}

}  // namespace bowline::detail::cpu

#elif !defined(BOWLINE_ARM_EXTENSIONS)

namespace bowline::detail::cpu {
const Blocks16* bf16_blocks() { return nullptr; }
}  // namespace bowline::detail::cpu

#endif
