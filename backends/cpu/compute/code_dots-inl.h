// Dot products of one f32 row with four quantized rows, which are dequantized in registers.
// Included once per instruction set.
//
//   sums[j] += sum over k of a[k] * scale(j, k) * (code(j, k) - zero(j, k))      j < 4
//
// Numerics  a block is summed before it is multiplied by its scale: lane i adds every k that is i
//           modulo the number of lanes. Even and odd blocks are added separately, in ascending
//           order.
#if defined(BOWLINE_CPU_CODE_DOTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BOWLINE_CPU_CODE_DOTS_INL_H
#undef BOWLINE_CPU_CODE_DOTS_INL_H
#else
#define BOWLINE_CPU_CODE_DOTS_INL_H
#endif

#include "compute/codes-inl.h"
#include "compute/dots-inl.h"
#include "compute/spans.h"

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {

// Layout of a block of 32 values: one byte each, or two per byte, as neighbours or as halves.
enum class CodeOrder { bytes, pairs, halves };

HWY_INLINE hn::Vec<CodeTag> code_numbers(hn::Vec<hn::RebindToSigned<CodeTag>> codes,
                                         hn::Vec<hn::RebindToSigned<CodeTag>> zero) {
  return hn::ConvertTo(CodeTag(), hn::Sub(codes, zero));
}

// The sum over a block, in vectors. The caller adds the lanes.
template <CodeOrder kOrder>
HWY_INLINE hn::Vec<CodeTag> dot_of_block(const uint8_t* HWY_RESTRICT codes,
                                         const float* HWY_RESTRICT a, int zero) {
  const CodeTag d;
  const hn::RebindToSigned<CodeTag> di;
  const size_t lanes = hn::Lanes(d);
  const auto z = hn::Set(di, zero);
  auto sum = hn::Zero(d);
  if constexpr (kOrder == CodeOrder::bytes) {
    const hn::Rebind<int8_t, CodeTag> d8;
    const auto* const from = reinterpret_cast<const int8_t*>(codes);
    for (size_t i = 0; i < kUsualBlock; i += lanes) {
      const auto code = hn::PromoteTo(di, hn::LoadU(d8, from + i));
      sum = hn::MulAdd(code_numbers(code, z), hn::LoadU(d, a + i), sum);
    }
  } else {
    const hn::Rebind<uint8_t, CodeTag> d8;
    for (size_t i = 0; i < kUsualBlock / 2; i += lanes) {
      const auto bytes = hn::PromoteTo(di, hn::LoadU(d8, codes + i));
      const auto low = code_numbers(nibbles(bytes), z);
      const auto high = code_numbers(hn::ShiftRight<4>(bytes), z);
      hn::Vec<CodeTag> a_low, a_high;
      if constexpr (kOrder == CodeOrder::halves) {
        a_low = hn::LoadU(d, a + i);
        a_high = hn::LoadU(d, a + kUsualBlock / 2 + i);
      } else {
        hn::LoadInterleaved2(d, a + 2 * i, a_low, a_high);
      }
      sum = hn::MulAdd(low, a_low, sum);
      sum = hn::MulAdd(high, a_high, sum);
    }
  }
  return sum;
}

// Processes the rows one after the other, so that memory is read sequentially.
template <CodeOrder kOrder>
void dots_of_codes(const Codes& codes, const size_t* rows, const float* HWY_RESTRICT a,
                   float* sums) {
  constexpr size_t kChains = 2;
  const CodeTag d;
  const CodeLayout& l = codes.layout;
  const size_t blocks = l.columns / kUsualBlock;
  hn::Vec<CodeTag> sum[kDotColumns];
  for (size_t j = 0; j < kDotColumns; ++j) {
    const CodeRow r = codes.row(rows[j]);
    hn::Vec<CodeTag> chain[kChains] = {hn::Zero(d), hn::Zero(d)};
    const auto add = [&](size_t c, size_t b) HWY_ATTR {
      const auto* const bytes = reinterpret_cast<const uint8_t*>(r.codes + b * l.block_bytes);
      const int z = l.zero_points ? static_cast<int8_t>(r.zeros[b * l.zero_block]) : l.zero;
      const float s = load_scale(r.scales + b * l.scale_block, l.scale_type);
      chain[c] =
          hn::MulAdd(dot_of_block<kOrder>(bytes, a + b * kUsualBlock, z), hn::Set(d, s), chain[c]);
    };
    size_t b = 0;
    for (; b + kChains <= blocks; b += kChains) {
      add(0, b);
      add(1, b + 1);
    }
    if (b < blocks) {
      add(0, b);
    }
    sum[j] = hn::Add(chain[0], chain[1]);
  }
  sums_of_lanes(sum, sums);
}

// For encodings with one block, and so one scale, per row.
inline void dots_of_code_rows(const Codes& codes, const size_t* rows, const float* HWY_RESTRICT a,
                              float* sums) {
  const CodeTag d;
  const hn::RebindToSigned<CodeTag> di;
  const hn::Rebind<int8_t, CodeTag> d8;
  const size_t lanes = hn::Lanes(d);
  const CodeLayout& l = codes.layout;
  const size_t n = l.columns;
  hn::Vec<CodeTag> sum[kDotColumns];
  for (size_t j = 0; j < kDotColumns; ++j) {
    const CodeRow r = codes.row(rows[j]);
    const Step step{load_scale(r.scales, l.scale_type),
                    l.zero_points ? static_cast<int8_t>(*r.zeros) : l.zero};
    const auto z = hn::Set(di, step.zero);
    const auto* const from = reinterpret_cast<const int8_t*>(r.codes);
    constexpr size_t kChains = 4;
    hn::Vec<CodeTag> chain[kChains] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    size_t i = 0;
    const auto add = [&](size_t c, size_t at) HWY_ATTR {
      const auto code = hn::PromoteTo(di, hn::LoadU(d8, from + at));
      chain[c] = hn::MulAdd(code_numbers(code, z), hn::LoadU(d, a + at), chain[c]);
    };
    for (; i + kChains * lanes <= n; i += kChains * lanes) {
      HWY_UNROLL(4)
      for (size_t c = 0; c < kChains; ++c) {
        add(c, i + c * lanes);
      }
    }
    for (; i + lanes <= n; i += lanes) {
      add(0, i);
    }
    float rest = 0;
    for (; i < n; ++i) {
      rest += static_cast<float>(from[i] - step.zero) * a[i];
    }
    sum[j] = hn::Mul(hn::Add(hn::Add(chain[0], chain[1]), hn::Add(chain[2], chain[3])),
                     hn::Set(d, step.scale));
    sums[j] += rest * step.scale;
  }
  sums_of_lanes(sum, sums);
}

// The sums of the groups of a span of a.
HWY_INLINE void sums_of_groups(const float* HWY_RESTRICT a, float* HWY_RESTRICT out) {
  const CodeTag d;
  for (size_t g = 0; g < kSpanGroups; ++g, a += kSpanGroup) {
    auto sum = hn::LoadU(d, a);
    for (size_t i = hn::MaxLanes(d); i < kSpanGroup; i += hn::MaxLanes(d)) {
      sum = hn::Add(sum, hn::LoadU(d, a + i));
    }
    out[g] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

// For block formats. A sum of products is multiplied by the scale of its group, and the sum of the
// group of a by the minimum.
inline void dots_of_spans(const Codes& codes, const size_t* rows, const float* HWY_RESTRICT a,
                          float* sums) {
  constexpr size_t kChains = 4;
  constexpr size_t kLanes = hn::MaxLanes(CodeTag());
  static_assert(kSpanGroup % kLanes == 0);
  const CodeTag d;
  const hn::RebindToSigned<CodeTag> di;
  const hn::Rebind<uint8_t, CodeTag> d8;
  const SpanReader reader = span_reader(*codes.layout.format);
  const auto offset = hn::Set(d, static_cast<float>(reader.offset));
  hn::Vec<CodeTag> sum[kDotColumns];
  for (size_t j = 0; j < kDotColumns; ++j) {
    sum[j] = hn::Zero(d);
  }
  UnpackedSpan span;
  alignas(64) float inputs[kSpanGroups];
  for (size_t i = 0; i < codes.layout.columns; i += kSpan) {
    sums_of_groups(a + i, inputs);
    for (size_t j = 0; j < kDotColumns; ++j) {
      reader.unpack(codes.row(rows[j]).scales + i / kSpan * reader.bytes, span);
      hn::Vec<CodeTag> chain[kChains] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
      for (size_t g = 0; g < kSpanGroups; g += kChains) {
        HWY_UNROLL(4)
        for (size_t c = 0; c < kChains; ++c) {
          auto products = hn::Zero(d);
          HWY_UNROLL(4)
          for (size_t part = 0; part < kSpanGroup / kLanes; ++part) {
            const size_t at = (g + c) * kSpanGroup + part * kLanes;
            const auto code = hn::PromoteTo(di, hn::LoadU(d8, span.codes + at));
            products = hn::MulAdd(hn::ConvertTo(d, code), hn::LoadU(d, a + i + at), products);
          }
          chain[c] = hn::MulAdd(products, hn::Set(d, span.scales[g + c]), chain[c]);
        }
      }
      for (size_t g = 0; g < kSpanGroups; g += kLanes) {
        const auto least =
            hn::MulAdd(hn::LoadU(d, span.scales + g), offset, hn::LoadU(d, span.least + g));
        sum[j] = hn::NegMulAdd(least, hn::LoadU(d, inputs + g), sum[j]);
      }
      sum[j] = hn::Add(sum[j], hn::Add(hn::Add(chain[0], chain[1]), hn::Add(chain[2], chain[3])));
    }
  }
  sums_of_lanes(sum, sums);
}

// (optional) Multiplies four quantized rows with a row. Null: the rows are dequantized first.
using CodeDots = void (*)(const Codes& codes, const size_t* rows, const float* a, float* sums);
inline CodeDots code_dots_for(const CodeLayout& l) {
  const bool has_usual_blocks = l.block == kUsualBlock && l.columns % kUsualBlock == 0 &&
                                kUsualBlock / 2 % hn::Lanes(CodeTag()) == 0;
  if (l.bits == 8) {
    return l.block >= l.columns ? dots_of_code_rows
           : has_usual_blocks   ? dots_of_codes<CodeOrder::bytes>
                                : nullptr;
  }
  if (l.bits == 0) {
    return has_spans(*l.format, l.columns) ? dots_of_spans : nullptr;
  }
  if (!has_usual_blocks) {
    return nullptr;
  }
  return l.half == 0                 ? dots_of_codes<CodeOrder::pairs>
         : l.half == kUsualBlock / 2 ? dots_of_codes<CodeOrder::halves>
                                     : nullptr;
}

// Rows first .. first + count; the sums are written to `out`.
inline void dots_by_fours(CodeDots dots, const Codes& codes, size_t first, size_t count,
                          const float* a, float* out) {
  for (size_t n = 0; n < count; n += kDotColumns) {
    const size_t width = HWY_MIN(count - n, kDotColumns);
    size_t rows[kDotColumns];
    for (size_t j = 0; j < kDotColumns; ++j) {
      rows[j] = first + n + HWY_MIN(j, width - 1);  // past the end: repeat the last row
    }
    float sums[kDotColumns] = {};
    dots(codes, rows, a, sums);
    std::copy_n(sums, width, out + n);
  }
}

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
