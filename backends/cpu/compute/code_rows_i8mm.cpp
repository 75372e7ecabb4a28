// See code_rows.h: SMMLA multiplies two rows of A with two rows of weights, eight elements at a
// time (Arm Architecture Reference Manual for A-profile, SMMLA (vector)).
#include "compute/code_rows.h"

#ifdef BOWLINE_ARM_EXTENSIONS
#include <algorithm>

#include "compute/row_integers_arm.h"

#ifdef __ARM_FEATURE_MATMUL_INT8
#define BOWLINE_I8MM
#else
#define BOWLINE_I8MM BOWLINE_ARM_FEATURE("i8mm")
#endif

namespace bowline::detail::cpu {
namespace {

// Rows of A that share an unpacked span of weights, and rows of weights that are unpacked together.
constexpr size_t kRows = 48;
constexpr size_t kColumns = 8;
constexpr size_t kPairs = kColumns / 2;

constexpr size_t kEight = 8;  // bytes of a row in a vector
constexpr size_t kUnits = kSpan / 32;

// A span of two rows of A: vectors of eight elements of both, for each digit of a group the first
// eight and the last eight. Floats are those of the lanes of a product, (row, column): (0, 0),
// (0, 1), (1, 0), (1, 1).
struct PairOfRows {
  alignas(64) int8_t digits[kSpanGroups][kMostDigits][2][2 * kEight];
  float units[kUnits][4];
  float sums[kSpanGroups][4];
};

static_assert(kRows / 2 * sizeof(PairOfRows) <= kCodeRowsFloats * sizeof(float));

// A span of eight rows of weights.
struct Panel {
  alignas(64) int8_t codes[kSpanGroups][kPairs][2][2 * kEight];
  float scales[kSpanGroups][kPairs][4];
  float least[kSpanGroups][kPairs][4];
};

// Converts 32 elements, `first` of the span, of row 0 or 1 of the pair. All elements are finite.
template <class Of>
void convert(const float* a, size_t first, size_t row, PairOfRows& out) {
  // Sums of 16 products with -128 fit into 32 bits.
  const int32x4_t most = vdupq_n_s32((1 << Of::kNumberBits) - 1);
  float32x4_t elements[kParts];
  for (size_t i = 0; i < kParts; ++i) {
    elements[i] = vld1q_f32(a + 4 * i);
  }
  Numbers numbers;
  to_numbers<Of>(elements, numbers);
  for (size_t i = 0; i < kParts; ++i) {
    numbers.parts[i] = vmaxq_s32(vminq_s32(numbers.parts[i], most), vnegq_s32(most));
  }
  int8_t digits[kMostDigits][32];
  store_digits<Of>(numbers, digits[0], 32);
  for (size_t i = 0; i < 2; ++i) {
    const size_t group = first / kSpanGroup + i;
    for (size_t digit = 0; digit < Of::kDigits; ++digit) {
      const int8_t* const from = digits[digit] + i * kSpanGroup;
      std::copy_n(from, kEight, out.digits[group][digit][0] + row * kEight);
      std::copy_n(from + kEight, kEight, out.digits[group][digit][1] + row * kEight);
    }
    const int32x4_t* const p = numbers.parts + i * kParts / 2;
    const int32x4_t sum = vaddq_s32(vaddq_s32(p[0], p[1]), vaddq_s32(p[2], p[3]));
    std::fill_n(out.sums[group] + 2 * row, 2, static_cast<float>(vaddvq_s32(sum)) * numbers.unit);
  }
  std::fill_n(out.units[first / 32] + 2 * row, 2, numbers.unit);
}

template <class Of>
void convert_rows(const CodeRowsJob& job, Range rows, size_t span, PairOfRows* out) {
  for (size_t r = rows.begin; r < rows.end; ++r) {
    const float* const a = job.a + r * job.a_row + span * kSpan;
    for (size_t i = 0; i < kSpan; i += 32) {
      convert<Of>(a + i, i, (r - rows.begin) % 2, out[(r - rows.begin) / 2]);
    }
  }
}

void unpack(const CodeRowsJob& job, const SpanReader& reader, Range columns, size_t span,
            Panel& out) {
  for (size_t j = 0; j < kColumns; ++j) {
    // Past the end, the last row is repeated.
    const size_t row = std::min(columns.begin + j, columns.end - 1);
    UnpackedSpan unpacked;
    reader.unpack(job.codes->row(row).scales + span * reader.bytes, unpacked);
    const uint8x8_t offset = vdup_n_u8(static_cast<uint8_t>(reader.offset));
    for (size_t g = 0; g < kSpanGroups; ++g) {
      for (size_t half = 0; half < 2; ++half) {
        const uint8x8_t codes = vld1_u8(unpacked.codes + g * kSpanGroup + half * kEight);
        vst1_s8(out.codes[g][j / 2][half] + j % 2 * kEight,
                vreinterpret_s8_u8(vsub_u8(codes, offset)));
      }
      for (size_t lane = j % 2; lane < 4; lane += 2) {
        out.scales[g][j / 2][lane] = unpacked.scales[g];
        out.least[g][j / 2][lane] = unpacked.least[g];
      }
    }
  }
}

// The sums of a group of 16 elements.
template <class Of>
BOWLINE_I8MM inline int32x4_t dots_of(const PairOfRows& a, const Panel& b, size_t group,
                                      size_t pair) {
  const int8x16_t low = vld1q_s8(b.codes[group][pair][0]);
  const int8x16_t high = vld1q_s8(b.codes[group][pair][1]);
  int32x4_t dots = vdupq_n_s32(0);
  for (size_t i = 0; i < Of::kDigits; ++i) {
    dots = i == 0 ? dots : vshlq_n_s32(dots, Of::kDigitBits);
    dots = vmmlaq_s32(dots, vld1q_s8(a.digits[group][i][0]), low);
    dots = vmmlaq_s32(dots, vld1q_s8(a.digits[group][i][1]), high);
  }
  return dots;
}

// out [kPairs]: the products of a span of two rows of A with eight rows of weights.
template <class Of, bool kLeast>
BOWLINE_I8MM inline void multiply(const PairOfRows& a, const Panel& b, float32x4_t* out) {
  float32x4_t sum[kPairs], least[kPairs];
  for (size_t c = 0; c < kPairs; ++c) {
    sum[c] = least[c] = vdupq_n_f32(0);
  }
  for (size_t g = 0; g < kSpanGroups; g += 2) {
    const float32x4_t unit = vld1q_f32(a.units[g / 2]);
#pragma GCC unroll 4
    for (size_t c = 0; c < kPairs; ++c) {
      const float32x4_t first = vcvtq_f32_s32(dots_of<Of>(a, b, g, c));
      const float32x4_t second = vcvtq_f32_s32(dots_of<Of>(a, b, g + 1, c));
      const float32x4_t two = vfmaq_f32(vmulq_f32(first, vld1q_f32(b.scales[g][c])), second,
                                        vld1q_f32(b.scales[g + 1][c]));
      sum[c] = vfmaq_f32(sum[c], two, unit);
      if constexpr (kLeast) {
        least[c] = vfmaq_f32(least[c], vld1q_f32(a.sums[g]), vld1q_f32(b.least[g][c]));
        least[c] = vfmaq_f32(least[c], vld1q_f32(a.sums[g + 1]), vld1q_f32(b.least[g + 1][c]));
      }
    }
  }
  for (size_t c = 0; c < kPairs; ++c) {
    out[c] = vsubq_f32(sum[c], least[c]);
  }
}

// Adds the sums of a span to a row of C.
inline void add_to(const CodeRowsJob& job, size_t row, Range columns, bool first, bool last,
                   const float* sums) {
  float* const c = job.c + row * job.c_row + columns.begin;
  for (size_t j = 0; j < std::min(kColumns, columns.size()); ++j) {
    const float sum = first && !job.accumulate ? sums[j] : c[j] + sums[j];
    c[j] = last && job.bias != nullptr ? sum + job.bias[columns.begin + j] : sum;
  }
}

template <class Of, bool kLeast>
BOWLINE_I8MM void multiply_rows(const CodeRowsJob& job, Range rows, Range columns,
                                PairOfRows* pairs) {
  const SpanReader reader = span_reader(*job.codes->layout.format);
  const size_t spans = job.codes->layout.columns / kSpan;
  for (size_t span = 0; span < spans; ++span) {
    convert_rows<Of>(job, rows, span, pairs);
    for (size_t j = columns.begin; j < columns.end; j += kColumns) {
      const Range some{j, columns.end};
      Panel panel;
      unpack(job, reader, some, span, panel);
      for (size_t r = 0; r < rows.size(); r += 2) {
        float32x4_t sums[kPairs];
        multiply<Of, kLeast>(pairs[r / 2], panel, sums);
        float two[2][kColumns];
        for (size_t c = 0; c < kPairs; ++c) {
          vst1_f32(two[0] + 2 * c, vget_low_f32(sums[c]));
          vst1_f32(two[1] + 2 * c, vget_high_f32(sums[c]));
        }
        for (size_t i = 0; i < std::min<size_t>(2, rows.size() - r); ++i) {
          add_to(job, rows.begin + r + i, some, span == 0, span + 1 == spans, two[i]);
        }
      }
    }
  }
}

}  // namespace

bool has_code_rows(const CodeLayout& layout) {
  return has_i8mm() && layout.format != nullptr && has_integer_dots(layout) &&
         has_spans(*layout.format, layout.columns);
}

bool are_finite(const float* a, size_t a_row, size_t rows, size_t columns) {
  uint32x4_t most = vdupq_n_u32(0);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t k = 0; k < columns; k += 4) {
      most = vmaxq_u32(most, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(a + r * a_row + k))));
    }
  }
  return vmaxvq_u32(most) < 0x7F800000;
}

void code_rows(const CodeRowsJob& job, Range rows, Range columns, float* scratch) {
  auto* const pairs = reinterpret_cast<PairOfRows*>(scratch);
  const bool least = job.codes->layout.format->has_minimum;
  const auto multiply_with =
      job.of == IntegersOf::bf16
          ? (least ? multiply_rows<OfBf16, true> : multiply_rows<OfBf16, false>)
          : (least ? multiply_rows<OfF32, true> : multiply_rows<OfF32, false>);
  for (size_t r = rows.begin; r < rows.end; r += kRows) {
    const Range some{r, std::min(rows.end, r + kRows)};
    multiply_with(job, some, columns, pairs);
  }
}

}  // namespace bowline::detail::cpu

#endif
