// See block_dots.h: with AVX2. A number of the row is a high part of 7 bits, multiplied as bytes
// (VPMADDUBSW), and a low part of 14 bits, multiplied as words (VPMADDWD). VPMADDUBSW adds two
// products in 16 bits and saturates, which codes below 256 and parts up to 64 do not reach. The
// numbers of a row that was bf16 are low parts alone.
#include "compute/block_variants.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <algorithm>
#include <cstring>
#include <utility>

#include "compute/row_integers.h"
#include "compute/spans.h"
#include "compute/targets.h"

namespace bowline::detail::cpu {
namespace {

constexpr size_t kRows = 4;

// Prefetch distance in bytes.
constexpr size_t kAhead = 4096;
constexpr size_t kLine = 64;

// Elements of a register of codes.
constexpr size_t kBytes = 32;
constexpr size_t kRegisters = kSpan / kBytes;
constexpr int kLowBits = 14;
static_assert(OfBf16::kNumberBits <= kLowBits);

// Floats of the groups of a span: 8 groups of 32 elements, or 16 of 16.
template <size_t kVectors>
struct OfGroups {
  __m256 v[kVectors];
};

template <size_t kVectors>
BOWLINE_AVX2 inline OfGroups<kVectors> load_groups(const float* from) {
  OfGroups<kVectors> out;
  for (size_t i = 0; i < kVectors; ++i) {
    out.v[i] = _mm256_load_ps(from + 8 * i);
  }
  return out;
}
template <size_t kVectors>
BOWLINE_AVX2 inline OfGroups<kVectors> times(OfGroups<kVectors> a, const OfGroups<kVectors>& b) {
  for (size_t i = 0; i < kVectors; ++i) {
    a.v[i] = _mm256_mul_ps(a.v[i], b.v[i]);
  }
  return a;
}
template <size_t kVectors>
BOWLINE_AVX2 inline __m256 add_products(const OfGroups<kVectors>& a, const OfGroups<kVectors>& b,
                                        __m256 sum) {
  for (size_t i = 0; i < kVectors; ++i) {
    sum = _mm256_fmadd_ps(a.v[i], b.v[i], sum);
  }
  return sum;
}

// A span of the row. The words of 32 elements are those of even elements, then of odd elements.
struct SpanOfWords {
  alignas(32) int8_t high[kSpan];
  alignas(32) int16_t low[kRegisters][2][kBytes / 2];
  alignas(32) float units[2][kSpanGroups];  // [0]: of groups of 32, [1]: of groups of 16
  alignas(32) float sums[2][kSpanGroups];
};

// Of 16 numbers, those with even or odd places.
template <int kOdd>
BOWLINE_AVX2 inline __m256i every_second(__m256i first, __m256i second) {
  const __m256 mixed = _mm256_shuffle_ps(_mm256_castsi256_ps(first), _mm256_castsi256_ps(second),
                                         kOdd == 0 ? 0x88 : 0xDD);
  return _mm256_permute4x64_epi64(_mm256_castps_si256(mixed), 0xD8);
}

// The same of 32 numbers, as words.
template <int kOdd>
BOWLINE_AVX2 inline void store_words(const __m256i* numbers, int16_t* out) {
  const __m256i words = _mm256_packs_epi32(every_second<kOdd>(numbers[0], numbers[1]),
                                           every_second<kOdd>(numbers[2], numbers[3]));
  _mm256_store_si256(reinterpret_cast<__m256i*>(out), _mm256_permute4x64_epi64(words, 0xD8));
}

template <class Of>
BOWLINE_AVX2 bool make_span(const float* a, SpanOfWords& out) {
  for (size_t i = 0; i < kRegisters; ++i, a += kBytes) {
    const __m256 elements[kParts] = {_mm256_loadu_ps(a), _mm256_loadu_ps(a + 8),
                                     _mm256_loadu_ps(a + 16), _mm256_loadu_ps(a + 24)};
    Numbers numbers;
    if (!to_numbers<Of>(elements, numbers)) {
      return false;
    }
    out.units[0][i] = out.units[1][2 * i] = out.units[1][2 * i + 1] = numbers.unit;
    alignas(16) float sums[4];
    _mm_store_ps(sums, _mm_mul_ps(sums_of_groups(numbers), _mm_set1_ps(numbers.unit)));
    out.sums[0][i] = sums[0] + sums[1];
    out.sums[1][2 * i] = sums[0];
    out.sums[1][2 * i + 1] = sums[1];
    if constexpr (Of::kNumberBits > kLowBits) {
      __m256i high[kParts];
      split<kLowBits>(numbers.parts, high);
      _mm256_store_si256(reinterpret_cast<__m256i*>(out.high + i * kBytes), to_bytes(high));
    }
    store_words<0>(numbers.parts, out.low[i][0]);
    store_words<1>(numbers.parts, out.low[i][1]);
  }
  return true;
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
  static constexpr bool kHasOffset = true;
  static constexpr bool kHasLeast = true;
  static int offset(const SpanReader& reader) { return reader.offset; }

  BOWLINE_AVX2 AnySpan(const SpanReader& reader, const std::byte* span) {
    reader.unpack(span, unpacked_);
  }
  BOWLINE_AVX2 OfGroups<2> scales() const { return load_groups<2>(unpacked_.scales); }
  BOWLINE_AVX2 OfGroups<2> least() const { return load_groups<2>(unpacked_.least); }
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
  static constexpr bool kHasOffset = false;
  static constexpr bool kHasLeast = true;
  static int offset(const SpanReader&) { return 0; }

  BOWLINE_AVX2 Q4KSpan(const SpanReader&, const std::byte* span) : span_(span) {
    std::memcpy(words_, span + 4, sizeof(words_));
  }
  BOWLINE_AVX2 OfGroups<1> scales() const { return numbers(words_[0], words_[2], span_); }
  BOWLINE_AVX2 OfGroups<1> least() const { return numbers(words_[1], words_[2] >> 4, span_ + 2); }
  template <size_t kNumber>
  BOWLINE_AVX2 __m256i codes() const {
    return low_bits<kNumber % 2 * 4>(load_bytes(span_ + 16 + kNumber / 2 * kBytes), 4);
  }

 private:
  // Four numbers of 6 bits, and four whose high bits are those of the first, times a factor.
  BOWLINE_AVX2 static OfGroups<1> numbers(uint32_t first, uint32_t low, const std::byte* factor) {
    const uint32_t second = (low & 0x0F0F0F0F) | (first >> 6 & 0x03030303) << 4;
    const uint64_t both = uint64_t{second} << 32 | (first & 0x3F3F3F3F);
    const __m256i eight = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(both)));
    return {{_mm256_mul_ps(_mm256_cvtepi32_ps(eight), load_half(factor))}};
  }

  const std::byte* span_;
  uint32_t words_[3];
};

// See formats/q6_k.h.
class Q6KSpan {
 public:
  static constexpr bool kHasOffset = true;
  static constexpr bool kHasLeast = false;
  static int offset(const SpanReader&) { return 32; }

  BOWLINE_AVX2 Q6KSpan(const SpanReader&, const std::byte* span) : span_(span) {}
  BOWLINE_AVX2 OfGroups<2> scales() const {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(span_ + 192));
    const __m256 factor = load_half(span_ + 208);
    const __m256i first = _mm256_cvtepi8_epi32(bytes);
    const __m256i second = _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8));
    return {{_mm256_mul_ps(_mm256_cvtepi32_ps(first), factor),
             _mm256_mul_ps(_mm256_cvtepi32_ps(second), factor)}};
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
  static constexpr bool kHasOffset = true;
  static constexpr bool kHasLeast = false;
  static int offset(const SpanReader&) { return 1 << (kBits - 1); }

  BOWLINE_AVX2 SpanOfBlocks(const SpanReader&, const std::byte* span) : span_(span) {}
  BOWLINE_AVX2 OfGroups<1> scales() const {
    const auto at = [this](size_t block) {
      int16_t bits;
      std::memcpy(&bits, span_ + block * kBlock, sizeof(bits));
      return bits;
    };
    return {
        {_mm256_cvtph_ps(_mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)))}};
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
template <class Of, size_t kNumber>
BOWLINE_AVX2 inline __m256i dots_of(__m256i codes, const SpanOfWords& a) {
  const __m256i even = _mm256_and_si256(codes, _mm256_set1_epi16(0x00FF));
  const __m256i odd = _mm256_srli_epi16(codes, 8);
  const __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(even, load_bytes(a.low[kNumber][0])),
                                       _mm256_madd_epi16(odd, load_bytes(a.low[kNumber][1])));
  if constexpr (Of::kNumberBits <= kLowBits) {
    return sum;
  }
  const __m256i high = load_bytes(a.high + kNumber * kBytes);
  return _mm256_add_epi32(sum, sums_of_fours(codes, high, 1 << kLowBits));
}

// Factors of the groups of a span, for the lanes of each register of codes. If a register is one
// group, its factor is broadcast from memory, which needs no arithmetic unit.
template <size_t kVectors>
class Factors;

template <>
class Factors<1> {
 public:
  BOWLINE_AVX2 explicit Factors(const OfGroups<1>& factors) {
    _mm256_store_ps(factors_, factors.v[0]);
  }
  template <size_t kNumber>
  BOWLINE_AVX2 __m256 of() const {
    return _mm256_broadcast_ss(factors_ + kNumber);
  }

 private:
  alignas(32) float factors_[kRegisters];
};

// The numbers of the lanes are loaded: each constant in a register would be built for every row.
struct Lanes {
  alignas(32) int32_t of[4][8];
};
constexpr Lanes kLanes{{{0, 0, 0, 0, 1, 1, 1, 1},
                        {2, 2, 2, 2, 3, 3, 3, 3},
                        {4, 4, 4, 4, 5, 5, 5, 5},
                        {6, 6, 6, 6, 7, 7, 7, 7}}};

template <>
class Factors<2> {
 public:
  BOWLINE_AVX2 explicit Factors(const OfGroups<2>& factors) : factors_(factors) {}
  template <size_t kNumber>
  BOWLINE_AVX2 __m256 of() const {
    return _mm256_permutevar8x32_ps(factors_.v[kNumber / 4], load_bytes(kLanes.of[kNumber % 4]));
  }

 private:
  OfGroups<2> factors_;
};

// The sums of a row: of products in two chains, and of what is subtracted.
struct Sums {
  __m256 chains[2];
  __m256 least;
  __m256 scales;  // to be multiplied by the offset
};

template <class Of, class Span, size_t kVectors, size_t... kNumbers>
BOWLINE_AVX2 inline void add_registers(const Span& span, const SpanOfWords& a,
                                       const Factors<kVectors>& factors, Sums& s,
                                       std::index_sequence<kNumbers...>) {
  ((s.chains[kNumbers % 2] = _mm256_fmadd_ps(
        _mm256_cvtepi32_ps(dots_of<Of, kNumbers>(span.template codes<kNumbers>(), a)),
        factors.template of<kNumbers>(), s.chains[kNumbers % 2])),
   ...);
}

template <class Of, class Span, size_t kVectors>
BOWLINE_AVX2 inline void add_span(const Span& span, const OfGroups<kVectors>& scales,
                                  const SpanOfWords& a, Sums& s) {
  const auto sums = load_groups<kVectors>(a.sums[kVectors - 1]);
  if constexpr (Span::kHasOffset) {
    s.scales = add_products(scales, sums, s.scales);
  }
  if constexpr (Span::kHasLeast) {
    s.least = add_products(span.least(), sums, s.least);
  }
  const Factors<kVectors> factors(times(scales, load_groups<kVectors>(a.units[kVectors - 1])));
  add_registers<Of>(span, a, factors, s, std::make_index_sequence<kRegisters>());
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
  const auto* const a = reinterpret_cast<const SpanOfWords*>(row);
  for (size_t n = 0; n < count; n += kRows) {
    __m256 sums[kRows];
    for (size_t j = 0; j < kRows; ++j) {  // past the end, the last row is repeated
      const std::byte* weights = codes.row(first + std::min(n + j, count - 1)).scales;
      Sums s = {};
      for (size_t i = 0; i < spans; ++i, weights += reader.bytes) {
        for (size_t byte = 0; byte < reader.bytes; byte += kLine) {
          _mm_prefetch(weights + kAhead + byte, _MM_HINT_T0);
        }
        const Span span(reader, weights);
        add_span<Of>(span, span.scales(), a[i], s);
      }
      const __m256 less = _mm256_fmadd_ps(s.scales, offset, s.least);
      sums[j] = _mm256_sub_ps(_mm256_add_ps(s.chains[0], s.chains[1]), less);
    }
    alignas(16) float four[kRows];
    _mm_store_ps(four, sums_of_lanes(sums));
    for (size_t j = 0; j < std::min(kRows, count - n); ++j) {
      out[n + j] = four[j];
    }
  }
}

struct Avx2 {
  using Span = SpanOfWords;
  template <class Of>
  static IntegerDots dots_of_format(const BlockFormat& format) {
    return format.name == "q4_k"   ? dots_of_spans<Of, Q4KSpan>
           : format.name == "q6_k" ? dots_of_spans<Of, Q6KSpan>
           : format.name == "q8_0" ? dots_of_spans<Of, SpanOfBlocks<8>>
           : format.name == "q4_0" ? dots_of_spans<Of, SpanOfBlocks<4>>
                                   : dots_of_spans<Of, AnySpan>;
  }
};

}  // namespace

const BlockDots* block_dots_avx2() { return has_avx2() ? &BlockDotsOf<Avx2>::kDots : nullptr; }

}  // namespace bowline::detail::cpu

#else

namespace bowline::detail::cpu {
const BlockDots* block_dots_avx2() { return nullptr; }
}  // namespace bowline::detail::cpu

#endif
