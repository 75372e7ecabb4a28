// See block_dots.h: with AVX2, whose VPMADDUBSW adds two products of bytes in 16 bits and
// saturates. No sum saturates here: codes are below 256 and digits of seven bits at most 64, or
// codes are below 64 and digits of eight bits at most 128.
#include "compute/block_rows.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <algorithm>
#include <cstring>

namespace bowline::detail::cpu {
namespace {

constexpr size_t kRows = 4;
// Elements of a register, which are two groups.
constexpr size_t kBytes = 32;

// Floats of the groups of a span.
struct OfGroups {
  __m256 first;
  __m256 second;
};

BOWLINE_AVX2 inline OfGroups load_groups(const float* from) {
  return {_mm256_load_ps(from), _mm256_load_ps(from + 8)};
}
BOWLINE_AVX2 inline OfGroups times(const OfGroups& a, const OfGroups& b) {
  return {_mm256_mul_ps(a.first, b.first), _mm256_mul_ps(a.second, b.second)};
}
BOWLINE_AVX2 inline __m256 add_products(const OfGroups& a, const OfGroups& b, __m256 sum) {
  return _mm256_fmadd_ps(a.second, b.second, _mm256_fmadd_ps(a.first, b.first, sum));
}

BOWLINE_AVX2 inline __m256i load_bytes(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
template <int kShift>
BOWLINE_AVX2 inline __m256i low_bits(__m256i bytes, int bits) {
  return _mm256_and_si256(_mm256_srli_epi16(bytes, kShift),
                          _mm256_set1_epi8(static_cast<int8_t>((1 << bits) - 1)));
}
BOWLINE_AVX2 inline __m256 load_half(const std::byte* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return _mm256_cvtph_ps(_mm_set1_epi16(static_cast<int16_t>(bits)));
}

// A span of weights of any format, after it is unpacked.
class AnySpan {
 public:
  static constexpr bool kSmallCodes = false;  // below 64
  static constexpr bool kHasLeast = true;
  static int offset(const SpanReader& reader) { return reader.offset; }

  BOWLINE_AVX2 AnySpan(const SpanReader& reader, const std::byte* span) {
    reader.unpack(span, unpacked_);
  }
  BOWLINE_AVX2 OfGroups scales() const { return load_groups(unpacked_.scales); }
  BOWLINE_AVX2 OfGroups least() const { return load_groups(unpacked_.least); }
  template <size_t kNumber>
  BOWLINE_AVX2 __m256i codes() const {
    return load_bytes(unpacked_.codes + kNumber * kBytes);
  }

 private:
  UnpackedSpan unpacked_;
};

// See formats/q4_k.h.
class Q4KSpan {
 public:
  static constexpr bool kSmallCodes = true;
  static constexpr bool kHasLeast = true;
  static int offset(const SpanReader&) { return 0; }

  BOWLINE_AVX2 Q4KSpan(const SpanReader&, const std::byte* span) : span_(span) {
    std::memcpy(words_, span + 4, sizeof(words_));
  }
  BOWLINE_AVX2 OfGroups scales() const {
    return twice_each(words_[0], words_[2], load_half(span_));
  }
  BOWLINE_AVX2 OfGroups least() const {
    return twice_each(words_[1], words_[2] >> 4, load_half(span_ + 2));
  }
  template <size_t kNumber>
  BOWLINE_AVX2 __m256i codes() const {
    return low_bits<kNumber % 2 * 4>(load_bytes(span_ + 16 + kNumber / 2 * kBytes), 4);
  }

 private:
  // Four numbers of 6 bits, and four whose high bits are those of the first. Each is that of two
  // groups.
  BOWLINE_AVX2 static OfGroups twice_each(uint32_t first, uint32_t low, __m256 factor) {
    const uint32_t second = (low & 0x0F0F0F0F) | (first >> 6 & 0x03030303) << 4;
    return {twice_four(first & 0x3F3F3F3F, factor), twice_four(second, factor)};
  }
  BOWLINE_AVX2 static __m256 twice_four(uint32_t bytes, __m256 factor) {
    const __m128i four = _mm_cvtsi32_si128(static_cast<int32_t>(bytes));
    const __m256i twice = _mm256_cvtepu8_epi32(_mm_unpacklo_epi8(four, four));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(twice), factor);
  }

  const std::byte* span_;
  uint32_t words_[3];
};

// See formats/q6_k.h.
class Q6KSpan {
 public:
  static constexpr bool kSmallCodes = true;
  static constexpr bool kHasLeast = false;
  static int offset(const SpanReader&) { return 32; }

  BOWLINE_AVX2 Q6KSpan(const SpanReader&, const std::byte* span) : span_(span) {}
  BOWLINE_AVX2 OfGroups scales() const {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(span_ + 192));
    const __m256 factor = load_half(span_ + 208);
    return times({_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                  _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))},
                 {factor, factor});
  }
  template <size_t kNumber>
  BOWLINE_AVX2 __m256i codes() const {
    constexpr size_t kHalf = kNumber / 4;
    constexpr int kQuarter = kNumber % 4;
    const __m256i low = load_bytes(span_ + kHalf * 64 + kNumber % 2 * kBytes);
    const __m256i high = load_bytes(span_ + 128 + kHalf * kBytes);
    // Moves bits 2 * kQuarter and 2 * kQuarter + 1 to bits 4 and 5.
    const __m256i moved = kQuarter < 2 ? _mm256_slli_epi16(high, 4 - 2 * kQuarter)
                                       : _mm256_srli_epi16(high, 2 * kQuarter - 4);
    return _mm256_or_si256(low_bits<kQuarter / 2 * 4>(low, 4),
                           _mm256_and_si256(moved, _mm256_set1_epi8(0x30)));
  }

 private:
  const std::byte* span_;
};

// Blocks that are an f16 scale and 32 values of 8 or 4 bits: see formats/q8_0.h and formats/q4_0.h.
template <int kBits>
class SpanOfBlocks {
 public:
  static constexpr bool kSmallCodes = kBits == 4;
  static constexpr bool kHasLeast = false;
  static int offset(const SpanReader&) { return 1 << (kBits - 1); }

  BOWLINE_AVX2 SpanOfBlocks(const SpanReader&, const std::byte* span) : span_(span) {}
  BOWLINE_AVX2 OfGroups scales() const {
    const auto at = [this](size_t block) {
      int16_t bits;
      std::memcpy(&bits, span_ + block * kBlock, sizeof(bits));
      return bits;
    };
    const __m256 all =
        _mm256_cvtph_ps(_mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)));
    return {_mm256_permutevar8x32_ps(all, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
            _mm256_permutevar8x32_ps(all, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))};
  }
  template <size_t kNumber>
  BOWLINE_AVX2 __m256i codes() const {
    const std::byte* const values = span_ + kNumber * kBlock + sizeof(uint16_t);
    if constexpr (kBits == 8) {
      return _mm256_xor_si256(load_bytes(values), _mm256_set1_epi8(static_cast<int8_t>(0x80)));
    } else {
      const __m128i pairs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values));
      return low_bits<0>(_mm256_set_m128i(_mm_srli_epi16(pairs, 4), pairs), 4);
    }
  }

 private:
  static constexpr size_t kBlock = sizeof(uint16_t) + kBits * 32 / 8;

  const std::byte* span_;
};

// The sums of four products in 32 bits, which hold the product of a code below 256 and a number of
// 20 bits four times.
template <class Of>
BOWLINE_AVX2 inline __m256i dots_of(__m256i codes, const int8_t* digits) {
  __m256i sum = sums_of_fours(codes, load_bytes(digits), 1 << (Of::kDigits - 1) * Of::kDigitBits);
  for (int i = 1; i < Of::kDigits; ++i) {
    const __m256i part = load_bytes(digits + static_cast<size_t>(i) * kStep);
    sum = _mm256_add_epi32(sum,
                           sums_of_fours(codes, part, 1 << (Of::kDigits - 1 - i) * Of::kDigitBits));
  }
  return sum;
}

// Adds the products of 32 elements, in four lanes for each group.
template <class Of, size_t kNumber, class Span>
BOWLINE_AVX2 inline __m256 add_groups(const Span& span, const SpanOfRow& a, const OfGroups& factors,
                                      __m256 sum) {
  constexpr size_t kElement = kNumber * kBytes;
  const __m256i dots =
      dots_of<Of>(span.template codes<kNumber>(), a.digits[kElement / kStep][0] + kElement % kStep);
  constexpr int g = kNumber % 4 * 2;
  const __m256i groups = _mm256_setr_epi32(g, g, g, g, g + 1, g + 1, g + 1, g + 1);
  const __m256 factor =
      _mm256_permutevar8x32_ps(kNumber < 4 ? factors.first : factors.second, groups);
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots), factor, sum);
}

// The sums of a row: of products in two chains, and of what is subtracted.
struct Sums {
  __m256 even;
  __m256 odd;
  __m256 least;
  __m256 scales;  // to be multiplied by the offset
};

template <class Of, class Span>
BOWLINE_AVX2 inline void add_span(const Span& span, const SpanOfRow& a, Sums& s) {
  const OfGroups scales = span.scales();
  const OfGroups sums = load_groups(a.sums);
  s.scales = add_products(scales, sums, s.scales);
  if constexpr (Span::kHasLeast) {
    s.least = add_products(span.least(), sums, s.least);
  }
  const OfGroups factors = times(scales, load_groups(a.units));
  s.even = add_groups<Of, 0>(span, a, factors, s.even);
  s.odd = add_groups<Of, 1>(span, a, factors, s.odd);
  s.even = add_groups<Of, 2>(span, a, factors, s.even);
  s.odd = add_groups<Of, 3>(span, a, factors, s.odd);
  s.even = add_groups<Of, 4>(span, a, factors, s.even);
  s.odd = add_groups<Of, 5>(span, a, factors, s.odd);
  s.even = add_groups<Of, 6>(span, a, factors, s.even);
  s.odd = add_groups<Of, 7>(span, a, factors, s.odd);
}

// Adds the lanes of each of four vectors.
BOWLINE_AVX2 inline __m128 sums_of_lanes(const __m256* v) {
  const __m256 fours = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
  return _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1));
}

// One row of weights after the other, in memory order.
template <class Of, class Span>
BOWLINE_AVX2 void dots_of_spans(const Codes& codes, size_t first, size_t count, const float* row,
                                float* out) {
  const SpanReader reader = span_reader(*codes.layout.format);
  const __m256 offset = _mm256_set1_ps(static_cast<float>(Span::offset(reader)));
  const size_t spans = codes.layout.columns / kSpan;
  const auto* const a = reinterpret_cast<const SpanOfRow*>(row);
  for (size_t n = 0; n < count; n += kRows) {
    const size_t some = std::min(kRows, count - n);
    __m256 sums[kRows] = {};
    for (size_t j = 0; j < some; ++j) {
      const std::byte* weights = codes.row(first + n + j).scales;
      Sums s = {};
      for (size_t i = 0; i < spans; ++i, weights += reader.bytes) {
        add_span<Of>(Span(reader, weights), a[i], s);
      }
      const __m256 less = _mm256_fmadd_ps(s.scales, offset, s.least);
      sums[j] = _mm256_sub_ps(_mm256_add_ps(s.even, s.odd), less);
    }
    alignas(16) float four[kRows];
    _mm_store_ps(four, sums_of_lanes(sums));
    std::copy_n(four, some, out + n);
  }
}

// Calls f with the type of the span of a format.
template <class F>
auto with_span(const BlockFormat& format, const F& f) {
  return format.name == "q4_k"   ? f.template operator()<Q4KSpan>()
         : format.name == "q6_k" ? f.template operator()<Q6KSpan>()
         : format.name == "q8_0" ? f.template operator()<SpanOfBlocks<8>>()
         : format.name == "q4_0" ? f.template operator()<SpanOfBlocks<4>>()
                                 : f.template operator()<AnySpan>();
}

}  // namespace

IntegersOf block_digits_avx2(const BlockFormat& format, IntegersOf of) {
  const bool small = with_span(format, []<class Span>() { return Span::kSmallCodes; });
  return small ? of : IntegersOf::f32;
}

IntegerDots block_dots_avx2(const BlockFormat& format, IntegersOf of) {
  return with_span(format, [of]<class Span>() -> IntegerDots {
    if constexpr (Span::kSmallCodes) {
      if (of == IntegersOf::bf16) {
        return dots_of_spans<OfBf16, Span>;
      }
    }
    return dots_of_spans<OfF32, Span>;
  });
}

}  // namespace bowline::detail::cpu
#endif
