// Products of bf16 with BFMMLA and BFDOT of aarch64. BFMMLA multiplies two rows of A with two
// columns of B, four elements of k at a time. gemm16.h describes the rounding (Arm Architecture
// Reference Manual for A-profile, BFMMLA and BFDOT (vector)).
#include "compute/arm_extensions.h"
#include "compute/gemm16_dots.h"

#ifdef BOWLINE_ARM_EXTENSIONS
#include <algorithm>
#include <cstring>

#include "base/float16.h"
#include "compute/arm.h"
#include "compute/convert.h"

#ifdef __ARM_FEATURE_BF16
#define BOWLINE_BF16
#else
#define BOWLINE_BF16 BOWLINE_ARM_FEATURE("bf16")
#endif

namespace bowline::detail::cpu {
namespace {

constexpr size_t kQuad = 4;  // elements of k
constexpr size_t kPairsOfRows = kTileRowsOfAll / 2;
constexpr size_t kPairsOfColumns = 8;
constexpr size_t kTileColumns = 2 * kPairsOfColumns;
constexpr size_t kDepth = 2 * kWords16;
constexpr size_t kVector = 8;  // bf16 elements

constexpr size_t quads_of(size_t depth) { return (depth + kQuad - 1) / kQuad; }

// Lines of an operand: rows of A or columns of B.
struct Lines {
  const uint16_t* from;
  size_t line;  // elements from one line to the next
  size_t k;     // elements from one element of a line to the next: `line` or `k` is 1
};

// Elements [k, k + 4) of a line, with zeros past `depth`.
inline uint16x4_t load_quad(const Lines& lines, size_t line, size_t k, size_t depth) {
  const uint16_t* const from = lines.from + line * lines.line + k * lines.k;
  if (lines.k == 1 && k + kQuad <= depth) {
    return vld1_u16(from);
  }
  uint16_t quad[kQuad] = {};
  for (size_t i = 0; i < std::min(kQuad, depth - k); ++i) {
    quad[i] = from[i * lines.k];
  }
  return vld1_u16(quad);
}

// Packs `count` lines in quads: for each quad of k, four elements of each line. Lines past `count`
// up to `room` are zeros.
void pack_lines(const Lines& lines, size_t count, size_t room, size_t depth, uint16_t* out) {
  for (size_t k = 0; k < depth; k += kQuad, out += room * kQuad) {
    size_t i = 0;
    if (lines.line == 1 && k + kQuad <= depth) {
      for (; i + kVector <= count; i += kVector) {
        const uint16_t* const from = lines.from + i + k * lines.k;
        const uint16x8x4_t quads = {{vld1q_u16(from), vld1q_u16(from + lines.k),
                                     vld1q_u16(from + 2 * lines.k), vld1q_u16(from + 3 * lines.k)}};
        vst4q_u16(out + i * kQuad, quads);
      }
    }
    for (; i < count; ++i) {
      vst1_u16(out + i * kQuad, load_quad(lines, i, k, depth));
    }
    std::fill(out + count * kQuad, out + room * kQuad, uint16_t{0});
  }
}

void pack(const Job16& job, Range columns, Range k, uint32_t* panels) {
  const GemmShape& s = job.shape;
  const bool turned = transposed_b(s.layout);
  auto* out = reinterpret_cast<uint16_t*>(panels);
  for (size_t j = columns.begin; j < columns.end; j += kTileColumns) {
    const Lines lines{turned ? job.b + j * s.ldb + k.begin : job.b + k.begin * s.ldb + j,
                      turned ? s.ldb : 1, turned ? 1 : s.ldb};
    pack_lines(lines, std::min(columns.end - j, kTileColumns), kTileColumns, k.size(), out);
    out += quads_of(k.size()) * kQuad * kTileColumns;
  }
}

BOWLINE_BF16 inline bfloat16x8_t load(const uint16_t* from) {
  return vreinterpretq_bf16_u16(vld1q_u16(from));
}

// sums [2 * kPairs][16], with rows of `row` floats: the products of packed A and B, added to the
// sums if `add`.
template <size_t kPairs>
BOWLINE_BF16 void multiply_tile(const uint16_t* a, const uint16_t* b, size_t quads, bool add,
                                float* sums, size_t row) {
  float32x4_t sum[kPairs][kPairsOfColumns];
#pragma GCC unroll 3
  for (size_t r = 0; r < kPairs; ++r) {
#pragma GCC unroll 8
    for (size_t c = 0; c < kPairsOfColumns; ++c) {
      sum[r][c] = vdupq_n_f32(0);
    }
  }
  for (size_t i = 0; i < quads; ++i) {
    bfloat16x8_t rows[kPairs];
#pragma GCC unroll 3
    for (size_t r = 0; r < kPairs; ++r) {
      rows[r] = load(a + r * kVector);
    }
#pragma GCC unroll 8
    for (size_t c = 0; c < kPairsOfColumns; ++c) {
      const bfloat16x8_t columns = load(b + c * kVector);
#pragma GCC unroll 3
      for (size_t r = 0; r < kPairs; ++r) {
        sum[r][c] = vbfmmlaq_f32(sum[r][c], rows[r], columns);
      }
    }
    a += kPairs * kVector;
    b += kPairsOfColumns * kVector;
  }
  const auto store = [&](float* to, float32x4_t v) {
    vst1q_f32(to, add ? vaddq_f32(vld1q_f32(to), v) : v);
  };
  for (size_t r = 0; r < kPairs; ++r) {
    for (size_t c = 0; c < kPairsOfColumns; c += 2) {
      const float32x4_t first = sum[r][c], second = sum[r][c + 1];
      float* const to = sums + 2 * r * row + 2 * c;
      store(to, vcombine_f32(vget_low_f32(first), vget_low_f32(second)));
      store(to + row, vcombine_f32(vget_high_f32(first), vget_high_f32(second)));
    }
  }
}

// Stores rows of C from the complete sums.
void finish_row(const Job16& job, size_t row, Range columns, float* sums) {
  bool nan = false;
  for (size_t j = 0; j < columns.size(); ++j) {
    if (job.bias != nullptr) {
      sums[j] += to_f32(bf16{job.bias[columns.begin + j]});
    }
    nan |= sums[j] != sums[j];
  }
  narrow(columns.size(), sums,
         reinterpret_cast<bf16*>(job.c + row * job.shape.ldc + columns.begin));
  if (nan) {
    job.nan->store(true, std::memory_order_relaxed);
  }
}

void multiply(const Job16& job, Range rows, Range columns, Range k, const uint32_t* panels,
              uint32_t* packed, float* sums) {
  static constexpr decltype(&multiply_tile<1>) kTiles[kPairsOfRows] = {
      multiply_tile<1>, multiply_tile<2>, multiply_tile<3>};
  const GemmShape& s = job.shape;
  const bool turned = transposed_a(s.layout);
  const size_t quads = quads_of(k.size());
  auto* const a = reinterpret_cast<uint16_t*>(packed);
  const auto* const b = reinterpret_cast<const uint16_t*>(panels);
  for (size_t i = rows.begin; i < rows.end; i += kTileRowsOfAll) {
    const size_t some = std::min(rows.end - i, kTileRowsOfAll);
    const size_t pairs = (some + 1) / 2;
    const Lines lines{turned ? job.a + k.begin * s.lda + i : job.a + i * s.lda + k.begin,
                      turned ? 1 : s.lda, turned ? s.lda : 1};
    pack_lines(lines, some, 2 * pairs, k.size(), a);
    float* const out = sums + (i - rows.begin) * job.sums_row;
    for (size_t j = 0; j < columns.size(); j += kTileColumns) {
      kTiles[pairs - 1](a, b + j * quads * kQuad, quads, k.begin > 0, out + j, job.sums_row);
    }
    for (size_t r = 0; r < some && k.end == s.k; ++r) {
      finish_row(job, i + r, columns, out + r * job.sums_row);
    }
  }
}

// The last elements of a row, with zeros past its end.
BOWLINE_BF16 inline bfloat16x8_t load_part(const uint16_t* from, size_t count) {
  uint16_t part[kVector] = {};
  std::copy_n(from, count, part);
  return load(part);
}

// The columns of dots().
struct DotColumns {
  template <size_t kRows, size_t kTogether>
  BOWLINE_BF16 static void multiply(const Job16& job, size_t n) {
    const GemmShape& s = job.shape;
    float32x4_t sum[kRows][kTogether];
#pragma GCC unroll 6
    for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (size_t j = 0; j < kTogether; ++j) {
        sum[r][j] = vdupq_n_f32(0);
      }
    }
    const auto add = [&](size_t k, auto load_at) BOWLINE_BF16 {
      bfloat16x8_t b[kTogether];
#pragma GCC unroll 4
      for (size_t j = 0; j < kTogether; ++j) {
        b[j] = load_at(job.b + (n + j) * s.ldb + k);
      }
#pragma GCC unroll 6
      for (size_t r = 0; r < kRows; ++r) {
        const bfloat16x8_t a = load_at(job.a + r * s.lda + k);
#pragma GCC unroll 4
        for (size_t j = 0; j < kTogether; ++j) {
          sum[r][j] = vbfdotq_f32(sum[r][j], a, b[j]);
        }
      }
    };
    const size_t whole = s.k / kVector * kVector;
    for (size_t k = 0; k < whole; k += kVector) {
      add(k, [](const uint16_t* from) BOWLINE_BF16 { return load(from); });
    }
    if (whole < s.k) {
      add(whole, [&](const uint16_t* from) BOWLINE_BF16 { return load_part(from, s.k - whole); });
    }
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t j = 0; j < kTogether; ++j) {
        write_dot(job, r, n + j, vaddvq_f32(sum[r][j]));
      }
    }
  }
};

}  // namespace

const Blocks16* bf16_blocks() {
  static constexpr Blocks16 kBlocks{kDepth, kTileColumns, pack, multiply,
                                    dots_of_columns<DotColumns>};
  return has_arm_bf16() ? &kBlocks : nullptr;
}

}  // namespace bowline::detail::cpu

#endif
