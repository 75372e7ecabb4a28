// See block_dots.h: with the dot products of bytes of aarch64 (SDOT). The results have the bits of
// block_dots_vnni.cpp: vector v of four lanes has the lanes of quarter v there.
//
// Source  Arm Architecture Reference Manual for A-profile, SDOT (vector).
#include "compute/arm_extensions.h"
#include "compute/block_variants.h"

#ifdef BOWLINE_ARM_EXTENSIONS
#include <algorithm>
#include <cstring>
#include <utility>

#include "compute/row_integers_arm.h"

namespace bowline::detail::cpu {
namespace {

constexpr size_t kVectors = 4;  // of four groups, and of the lanes of a sum

// A span of the row, as integers times the unit of each group. `sums` are the sums of the groups,
// and `start` 128 times the sums of four elements.
struct SpanOfDigits {
  alignas(64) int8_t digits[kSpanGroups][kMostDigits][kSpanGroup];  // the highest digit first
  alignas(64) int32_t start[kSpanGroups][4];
  alignas(64) float units[kSpanGroups];
  alignas(64) float sums[kSpanGroups];
};

inline int32x4_t sums_of_fours(const int32x4_t* parts) {
  return vpaddq_s32(vpaddq_s32(parts[0], parts[1]), vpaddq_s32(parts[2], parts[3]));
}

template <class Of>
bool make_span(const float* a, SpanOfDigits& out) {
  for (size_t g = 0; g < kSpanGroups; g += 2, a += 2 * kSpanGroup) {
    float32x4_t elements[kParts];
    for (size_t i = 0; i < kParts; ++i) {
      elements[i] = vld1q_f32(a + 4 * i);
    }
    Numbers numbers;
    if (!to_numbers<Of>(elements, numbers)) {
      return false;
    }
    int8_t digits[kMostDigits][2 * kSpanGroup];
    store_digits<Of>(numbers, digits[0], 2 * kSpanGroup);
    for (size_t i = 0; i < 2; ++i) {
      for (size_t digit = 0; digit < Of::kDigits; ++digit) {
        std::copy_n(digits[digit] + i * kSpanGroup, kSpanGroup, out.digits[g + i][digit]);
      }
      const int32x4_t fours = sums_of_fours(numbers.parts + i * kParts / 2);
      vst1q_s32(out.start[g + i], vshlq_n_s32(fours, 7));
      out.units[g + i] = numbers.unit;
      out.sums[g + i] = static_cast<float>(vaddvq_s32(fours)) * numbers.unit;
    }
  }
  return true;
}

// Floats of the groups of a span.
struct OfGroups {
  float32x4_t v[kVectors];
};

inline OfGroups load_groups(const float* from) {
  return {{vld1q_f32(from), vld1q_f32(from + 4), vld1q_f32(from + 8), vld1q_f32(from + 12)}};
}

// 16 bytes as floats, times a factor.
inline OfGroups times(int16x8_t low, int16x8_t high, float factor) {
  return {{vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), factor),
           vmulq_n_f32(vcvtq_f32_s32(vmovl_high_s16(low)), factor),
           vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), factor),
           vmulq_n_f32(vcvtq_f32_s32(vmovl_high_s16(high)), factor)}};
}

inline float load_half(const std::byte* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits))), 0);
}

inline uint8x16_t load_bytes(const void* from) {
  return vld1q_u8(static_cast<const uint8_t*>(from));
}

template <int kShift, int kBits>
inline uint8x16_t bits_of(uint8x16_t bytes) {
  if constexpr (kShift > 0) {
    bytes = vshrq_n_u8(bytes, kShift);
  }
  return kShift + kBits == 8 ? bytes : vandq_u8(bytes, vdupq_n_u8((1 << kBits) - 1));
}

// A span of weights of any format, after it is unpacked. Values up to 255 become signed by
// subtracting 128, which `start` of the row adds again.
class AnySpan {
 public:
  static constexpr bool kNeedsStart = true;

  AnySpan(const SpanReader& reader, const std::byte* span) { reader.unpack(span, unpacked_); }
  OfGroups scales() const { return load_groups(unpacked_.scales); }
  OfGroups least() const { return load_groups(unpacked_.least); }
  template <size_t kGroup>
  int8x16_t codes() const {
    const uint8x16_t codes = load_bytes(unpacked_.codes + kGroup * kSpanGroup);
    return vreinterpretq_s8_u8(veorq_u8(codes, vdupq_n_u8(0x80)));
  }

 private:
  UnpackedSpan unpacked_;
};

// The formats that people use most are never stored. spans.cpp has the same formats for all
// instruction sets.

// See formats/q4_k.h.
class Q4KSpan {
 public:
  static constexpr bool kNeedsStart = false;

  Q4KSpan(const SpanReader&, const std::byte* span) : span_(span) {
    std::memcpy(words_, span + 4, sizeof(words_));
  }
  OfGroups scales() const { return numbers(words_[0], words_[2], span_); }
  OfGroups least() const { return numbers(words_[1], words_[2] >> 4, span_ + 2); }
  template <size_t kGroup>
  int8x16_t codes() const {
    const uint8x16_t pairs = load_bytes(span_ + 16 + kGroup / 4 * 32 + kGroup % 2 * 16);
    return vreinterpretq_s8_u8(bits_of<kGroup / 2 % 2 * 4, 4>(pairs));
  }

 private:
  // Four numbers of 6 bits, and four whose high bits are those of the first, times a factor. Each
  // is that of two groups.
  static OfGroups numbers(uint32_t first, uint32_t low, const std::byte* factor) {
    const uint32_t second = (low & 0x0F0F0F0F) | (first >> 6 & 0x03030303) << 4;
    const uint64_t both = uint64_t{second} << 32 | (first & 0x3F3F3F3F);
    const uint8x8_t eight = vcreate_u8(both);
    return times(vreinterpretq_s16_u16(vmovl_u8(vzip1_u8(eight, eight))),
                 vreinterpretq_s16_u16(vmovl_u8(vzip2_u8(eight, eight))), load_half(factor));
  }

  const std::byte* span_;
  uint32_t words_[3];
};

// See formats/q6_k.h.
class Q6KSpan {
 public:
  static constexpr bool kNeedsStart = false;

  Q6KSpan(const SpanReader&, const std::byte* span) : span_(span) {}
  OfGroups scales() const {
    const int8x16_t bytes = vreinterpretq_s8_u8(load_bytes(span_ + 192));
    return times(vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes), load_half(span_ + 208));
  }
  OfGroups least() const { return {}; }
  template <size_t kGroup>
  int8x16_t codes() const {
    constexpr size_t kHalf = kGroup / 8;
    constexpr size_t kQuarter = kGroup % 8 / 2;
    constexpr size_t kPart = kGroup % 2 * 16;
    const uint8x16_t low = load_bytes(span_ + kHalf * 64 + kQuarter % 2 * 32 + kPart);
    const uint8x16_t high = load_bytes(span_ + 128 + kHalf * 32 + kPart);
    const uint8x16_t low_bits = bits_of<kQuarter / 2 * 4, 4>(low);
    const uint8x16_t high_bits = bits_of<kQuarter * 2, 2>(high);
    return vreinterpretq_s8_u8(vorrq_u8(low_bits, vshlq_n_u8(high_bits, 4)));
  }

 private:
  const std::byte* span_;
};

// The sums of four products in 32 bits, which hold the product of a code below 256 and a number of
// 20 bits four times.
template <class Of>
BOWLINE_DOTPROD inline int32x4_t dots_of(int8x16_t codes, const int8_t (*digits)[kSpanGroup]) {
  int32x4_t dots = vdotq_s32(vdupq_n_s32(0), codes, vld1q_s8(digits[0]));
  for (int i = 1; i < Of::kDigits; ++i) {
    dots = vdotq_s32(vshlq_n_s32(dots, Of::kDigitBits), codes, vld1q_s8(digits[i]));
  }
  return dots;
}

// The sums of a row: of products, and of what is subtracted.
struct Sums {
  OfGroups products;
  OfGroups least;
};

template <class Of, size_t kGroup, class Span>
BOWLINE_DOTPROD inline void add_group(const Span& span, const SpanOfDigits& a,
                                      const OfGroups& factors, Sums& sums) {
  int32x4_t dots = dots_of<Of>(span.template codes<kGroup>(), a.digits[kGroup]);
  if constexpr (Span::kNeedsStart) {
    dots = vaddq_s32(dots, vld1q_s32(a.start[kGroup]));
  }
  float32x4_t& sum = sums.products.v[kGroup % kVectors];
  sum = vfmaq_laneq_f32(sum, vcvtq_f32_s32(dots), factors.v[kGroup / kVectors], kGroup % kVectors);
}

template <class Of, class Span, size_t... kGroups>
BOWLINE_DOTPROD inline void add_groups(const Span& span, const SpanOfDigits& a,
                                       const OfGroups& factors, Sums& sums,
                                       std::index_sequence<kGroups...>) {
  (add_group<Of, kGroups>(span, a, factors, sums), ...);
}

// Adds the products of a span of a row of weights, and its minimums.
template <class Of, class Span>
BOWLINE_DOTPROD inline void add_span(const Span& span, float offset, const SpanOfDigits& a,
                                     Sums& sums) {
  const OfGroups scales = span.scales(), least = span.least();
  const OfGroups inputs = load_groups(a.sums), units = load_groups(a.units);
  OfGroups factors;
  for (size_t v = 0; v < kVectors; ++v) {
    sums.least.v[v] =
        vfmaq_f32(sums.least.v[v], vfmaq_n_f32(least.v[v], scales.v[v], offset), inputs.v[v]);
    factors.v[v] = vmulq_f32(scales.v[v], units.v[v]);
  }
  add_groups<Of>(span, a, factors, sums, std::make_index_sequence<kSpanGroups>());
}

// Adds lanes 2 apart, then the two sums of each vector, then vectors 2 apart.
inline float sum_of_lanes(const Sums& s) {
  float32x4_t v[kVectors];
  for (size_t i = 0; i < kVectors; ++i) {
    const float32x4_t lanes = vsubq_f32(s.products.v[i], s.least.v[i]);
    v[i] = vaddq_f32(lanes, vextq_f32(lanes, lanes, 2));
  }
  const float32x2_t low = vpadd_f32(vget_low_f32(v[0]), vget_low_f32(v[1]));
  const float32x2_t high = vpadd_f32(vget_low_f32(v[2]), vget_low_f32(v[3]));
  return vpadds_f32(vadd_f32(low, high));
}

template <class Of, class Span>
BOWLINE_DOTPROD void dots_of_spans(const Codes& codes, size_t first, size_t count, const float* row,
                                   float* out) {
  const SpanReader reader = span_reader(*codes.layout.format);
  const auto offset = static_cast<float>(reader.offset);
  const size_t spans = codes.layout.columns / kSpan;
  const auto* const a = reinterpret_cast<const SpanOfDigits*>(row);
  for (size_t n = 0; n < count; ++n) {
    const std::byte* weights = codes.row(first + n).scales;
    Sums sums = {};
    for (size_t i = 0; i < spans; ++i, weights += reader.bytes) {
      add_span<Of>(Span(reader, weights), offset, a[i], sums);
    }
    out[n] = sum_of_lanes(sums);
  }
}

struct Dotprod {
  using Span = SpanOfDigits;
  template <class Of>
  static IntegerDots dots_of_format(const BlockFormat& format) {
    return format.name == "q4_k"   ? dots_of_spans<Of, Q4KSpan>
           : format.name == "q6_k" ? dots_of_spans<Of, Q6KSpan>
                                   : dots_of_spans<Of, AnySpan>;
  }
};

}  // namespace

const BlockDots* block_dots_dotprod() {
  return has_dotprod() ? &BlockDotsOf<Dotprod>::kDots : nullptr;
}

}  // namespace bowline::detail::cpu

#elif defined(__aarch64__)

namespace bowline::detail::cpu {
const BlockDots* block_dots_dotprod() { return nullptr; }
}  // namespace bowline::detail::cpu

#endif
