// See block_dots.h: with AVX512_VNNI.
#include "compute/block_variants.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <algorithm>
#include <cstring>

#include "compute/row_integers.h"
#include "compute/spans.h"
#include "compute/vnni.h"

namespace bowline::detail::cpu {
namespace {

constexpr size_t kRows = 4;

// Prefetch distance in bytes.
constexpr size_t kAhead = 8192;
constexpr size_t kLine = 64;

// A span is multiplied in steps of 64 elements, the bytes of a register.
constexpr size_t kSteps = 4;
constexpr size_t kStep = kSpan / kSteps;

// A span of the row, as integers times the unit of each group. `sums` are the sums of the groups.
struct SpanOfRow {
  alignas(64) int8_t digits[kSteps][kMostDigits][kStep];  // the highest digit first
  alignas(64) float units[kSpanGroups];
  alignas(64) float sums[kSpanGroups];
};

template <class Of>
BOWLINE_AVX2 bool make_span(const float* a, SpanOfRow& out) {
  for (size_t g = 0; g < kSpanGroups; g += 2, a += 2 * kSpanGroup) {
    const __m256 elements[kParts] = {_mm256_loadu_ps(a), _mm256_loadu_ps(a + 8),
                                     _mm256_loadu_ps(a + 16), _mm256_loadu_ps(a + 24)};
    Numbers numbers;
    if (!to_numbers<Of>(elements, numbers)) {
      return false;
    }
    out.units[g] = out.units[g + 1] = numbers.unit;
    _mm_storel_pi(reinterpret_cast<__m64*>(out.sums + g),
                  _mm_mul_ps(sums_of_groups(numbers), _mm_set1_ps(numbers.unit)));
    const size_t element = g * kSpanGroup;
    store_digits<Of>(numbers, out.digits[element / kStep][0] + element % kStep, kStep);
  }
  return true;
}

// Loads 64 bytes in two halves, because no processor forwards two stores of 32 bytes to one load.
BOWLINE_VNNI inline __m512i load_halves(const void* from) {
  const auto* const at = static_cast<const __m256i*>(from);
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_load_si256(at)),
                            _mm256_load_si256(at + 1), 1);
}

// The scale and the least of each group of a span.
struct Scales {
  __m512 scale;
  __m512 least;
};

// A span of weights in registers: of any format, after it is unpacked.
class AnySpan {
 public:
  BOWLINE_VNNI AnySpan(const SpanReader& reader, const std::byte* span) {
    reader.unpack(span, unpacked_);
  }
  BOWLINE_VNNI Scales scales() const {
    return {_mm512_castsi512_ps(load_halves(unpacked_.scales)),
            _mm512_castsi512_ps(load_halves(unpacked_.least))};
  }
  template <size_t kNumber>
  BOWLINE_VNNI __m512i codes() const {
    return load_halves(unpacked_.codes + kNumber * kStep);
  }

 private:
  UnpackedSpan unpacked_;
};

// The formats that people use most are never stored: this makes products of one row faster by a
// third. spans.cpp has the same formats for all instruction sets.
BOWLINE_VNNI inline __m512 load_half(const std::byte* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(bits)));
}

// 32 bytes in both halves of a register, their bits shifted right, in each half by another number.
BOWLINE_VNNI inline __m512i shifted_halves(const std::byte* from, int low, int high) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m512i shifts = _mm512_inserti64x4(_mm512_set1_epi16(static_cast<int16_t>(low)),
                                            _mm256_set1_epi16(static_cast<int16_t>(high)), 1);
  return _mm512_srlv_epi16(_mm512_broadcast_i64x4(bytes), shifts);
}

BOWLINE_VNNI inline __m512i low_bits(__m512i bytes, int bits) {
  return _mm512_and_si512(bytes, _mm512_set1_epi8(static_cast<int8_t>((1 << bits) - 1)));
}

// See formats/q4_k.h.
class Q4KSpan {
 public:
  BOWLINE_VNNI Q4KSpan(const SpanReader&, const std::byte* span) : span_(span) {}
  BOWLINE_VNNI Scales scales() const {
    uint32_t words[3];
    std::memcpy(words, span_ + 4, sizeof(words));
    const auto high = [](uint32_t word) { return (word >> 6 & 0x03030303) << 4; };
    const uint32_t scales = (words[2] & 0x0F0F0F0F) | high(words[0]);
    const uint32_t least = (words[2] >> 4 & 0x0F0F0F0F) | high(words[1]);
    return {_mm512_mul_ps(twice_each(words[0] & 0x3F3F3F3F, scales), load_half(span_)),
            _mm512_mul_ps(twice_each(words[1] & 0x3F3F3F3F, least), load_half(span_ + 2))};
  }
  template <size_t kNumber>
  BOWLINE_VNNI __m512i codes() const {
    return low_bits(shifted_halves(span_ + 16 + 32 * kNumber, 0, 4), 4);
  }

 private:
  // A scale of 32 elements is that of two groups.
  BOWLINE_VNNI static __m512 twice_each(uint32_t first, uint32_t second) {
    const __m128i twice = _mm_setr_epi8(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m128i both = _mm_cvtsi64_si128(static_cast<int64_t>(uint64_t{second} << 32 | first));
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_shuffle_epi8(both, twice)));
  }

  const std::byte* span_;
};

// See formats/q6_k.h.
class Q6KSpan {
 public:
  BOWLINE_VNNI Q6KSpan(const SpanReader&, const std::byte* span) : span_(span) {}
  BOWLINE_VNNI Scales scales() const {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(span_ + 192));
    const __m512 scales = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
    return {_mm512_mul_ps(scales, load_half(span_ + 208)), _mm512_setzero_ps()};
  }
  template <size_t kNumber>
  BOWLINE_VNNI __m512i codes() const {
    constexpr int kShift = kNumber % 2 * 4;
    const __m512i low = _mm512_loadu_si512(span_ + kNumber / 2 * 64);
    const __m512i high = shifted_halves(span_ + 128 + kNumber / 2 * 32, kShift, kShift + 2);
    return _mm512_or_si512(low_bits(_mm512_srli_epi16(low, kShift), 4),
                           _mm512_slli_epi16(low_bits(high, 2), 4));
  }

 private:
  const std::byte* span_;
};

// Adds the products of a step. Four elements of a code below 256 and a number of 20 bits fit into
// the 32 bits of a lane.
template <class Of, size_t kNumber, class Span>
BOWLINE_VNNI inline __m512 add_step(const Span& span, const SpanOfRow& a, __m512 factors,
                                    __m512 sum) {
  const __m512i codes = span.template codes<kNumber>();
  __m512i dots = _mm512_setzero_si512();
  for (int i = 0; i < Of::kDigits; ++i) {
    dots = _mm512_dpbusd_epi32(i == 0 ? dots : _mm512_slli_epi32(dots, Of::kDigitBits), codes,
                               _mm512_load_si512(a.digits[kNumber][i]));
  }
  constexpr int g = kNumber * kStep / kSpanGroup;  // four lanes belong to a group
  const __m512i groups = _mm512_setr_epi32(g, g, g, g, g + 1, g + 1, g + 1, g + 1, g + 2, g + 2,
                                           g + 2, g + 2, g + 3, g + 3, g + 3, g + 3);
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), _mm512_permutexvar_ps(groups, factors), sum);
}

// Adds the products of a span of one row of weights to `sum`, and its minimums to `least`.
template <class Of, class Span>
BOWLINE_VNNI inline void add_span(const Span& span, __m512 offset, const SpanOfRow& a, __m512& sum,
                                  __m512& least) {
  const Scales s = span.scales();
  least = _mm512_fmadd_ps(_mm512_fmadd_ps(s.scale, offset, s.least), _mm512_load_ps(a.sums), least);
  const __m512 factors = _mm512_mul_ps(s.scale, _mm512_load_ps(a.units));
  sum = add_step<Of, 0>(span, a, factors, sum);
  sum = add_step<Of, 1>(span, a, factors, sum);
  sum = add_step<Of, 2>(span, a, factors, sum);
  sum = add_step<Of, 3>(span, a, factors, sum);
}

// Four rows share the span of a. They are prefetched in memory order, because hardware prefetching
// does not detect one stream in four.
template <class Of, class Span>
BOWLINE_VNNI void dots_of_spans(const Codes& codes, size_t first, size_t count, const float* row,
                                float* out) {
  const SpanReader reader = span_reader(*codes.layout.format);
  const __m512 offset = _mm512_set1_ps(static_cast<float>(reader.offset));
  const size_t spans = codes.layout.columns / kSpan;
  const auto* const a = reinterpret_cast<const SpanOfRow*>(row);
  for (size_t n = 0; n < count; n += kRows) {
    const std::byte* rows[kRows];
    for (size_t j = 0; j < kRows; ++j) {  // past the end, the last row is repeated
      rows[j] = codes.row(first + std::min(n + j, count - 1)).scales;
    }
    __m512 sum[kRows], least[kRows];
    for (size_t j = 0; j < kRows; ++j) {
      sum[j] = least[j] = _mm512_setzero_ps();
    }
    for (size_t i = 0; i < spans; ++i) {
      const std::byte* const ahead = rows[0] + i * kRows * reader.bytes + kAhead;
      for (size_t byte = 0; byte < kRows * reader.bytes; byte += kLine) {
        _mm_prefetch(ahead + byte, _MM_HINT_T0);
      }
#pragma GCC unroll 4
      for (size_t j = 0; j < kRows; ++j) {
        const Span span(reader, rows[j] + i * reader.bytes);
        add_span<Of>(span, offset, a[i], sum[j], least[j]);
      }
    }
    for (size_t j = 0; j < kRows; ++j) {
      sum[j] = _mm512_sub_ps(sum[j], least[j]);
    }
    alignas(16) float four[kRows];
    _mm_store_ps(four, sums_of_lanes(sum));
    std::copy_n(four, std::min(kRows, count - n), out + n);
  }
}

struct Vnni {
  using Span = SpanOfRow;
  template <class Of>
  static IntegerDots dots_of_format(const BlockFormat& format) {
    return format.name == "q4_k"   ? dots_of_spans<Of, Q4KSpan>
           : format.name == "q6_k" ? dots_of_spans<Of, Q6KSpan>
                                   : dots_of_spans<Of, AnySpan>;
  }
};

}  // namespace

const BlockDots* block_dots_vnni() { return has_vnni() ? &BlockDotsOf<Vnni>::kDots : nullptr; }

}  // namespace bowline::detail::cpu

#else

namespace bowline::detail::cpu {
const BlockDots* block_dots_vnni() { return nullptr; }
}  // namespace bowline::detail::cpu

#endif
