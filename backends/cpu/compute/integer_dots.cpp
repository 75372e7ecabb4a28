#include "compute/integer_dots.h"

#include <atomic>

#include "compute/block_dots.h"
#include "compute/code_blocks.h"

namespace bowline::detail::cpu {
namespace {

std::atomic<bool> allowed{true};

}  // namespace

void allow_integer_dots(bool allow) { allowed = allow; }

}  // namespace bowline::detail::cpu

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/float16.h"
#include "compute/row_integers.h"
#include "compute/vnni.h"

namespace bowline::detail::cpu {
namespace {

constexpr size_t kBlock = kCodeBlock;
constexpr size_t kRows = 4;

// Prefetch distance in bytes, by cache lines: four blocks of 4 bits are one line, of 8 bits two.
constexpr size_t kAhead = 12288;
constexpr size_t kLine = 64;

// 32 elements of a in the order of the quantized values, highest digits first, each with its start
// value. A start value is the sum over four digits, times upper_of() in the upper half, and times
// the zero point unless every block has its own zero point.
struct Block {
  alignas(64) int8_t digits[kMostDigits][kBlock];
  alignas(64) int32_t start[kMostDigits][kBlock / 4];
};

// Layout of a converted row: the unit of each block, padded to the alignment of a Block, then the
// blocks. Units and scales are read in chunks of kChunk.
constexpr size_t kChunk = 8;
constexpr size_t floats_of_units(size_t blocks) {
  constexpr size_t kAligned = alignof(Block) / sizeof(float);
  static_assert(kAligned % kChunk == 0);
  return (blocks + kAligned - 1) / kAligned * kAligned;
}
struct IntegerRow {
  const float* units;
  const Block* blocks;

  IntegerRow(const float* row, size_t count)
      : units(row), blocks(reinterpret_cast<const Block*>(row + floats_of_units(count))) {}
};

constexpr size_t floats_of_blocks(size_t blocks) {
  return floats_of_units(blocks) + blocks * sizeof(Block) / sizeof(float);
}

// 4-bit values in the upper half of a byte are not shifted: they, and sums over them, count 16
// times.
constexpr int upper_of(Order order) { return order == Order::bytes ? 1 : 16; }

// Added to a quantized value to make it unsigned.
constexpr int offset_of(Order order) { return order == Order::bytes ? 128 : 0; }

// A block in registers: two digits are the halves of one register.
struct LoadedBlock {
  __m512i digits;
  __m512i start;
  __m256i third;
  __m256i third_start;
};

template <class Of>
BOWLINE_VNNI inline LoadedBlock load(const Block& b) {
  LoadedBlock out = {};  // a missing third digit is 0
  out.digits = _mm512_load_si512(b.digits);
  out.start = _mm512_load_si512(b.start);
  if constexpr (Of::kDigits == 3) {
    out.third = _mm256_load_si256(reinterpret_cast<const __m256i*>(b.digits[2]));
    out.third_start = _mm256_load_si256(reinterpret_cast<const __m256i*>(b.start[2]));
  }
  return out;
}

// Puts quarters 0, 2, 1, 3 of a register in order.
BOWLINE_AVX2 inline __m256 in_order(__m256 mixed) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xD8));
}

// The 32 elements of a block; if two values share a byte as a pair, even elements come first.
BOWLINE_AVX2 inline void load_block(Order order, const float* a, __m256* out) {
  for (size_t i = 0; i < kParts; ++i) {
    out[i] = _mm256_loadu_ps(a + 8 * i);
  }
  if (order == Order::pairs) {
    const __m256 a0 = out[0], a1 = out[1], a2 = out[2], a3 = out[3];
    out[0] = in_order(_mm256_shuffle_ps(a0, a1, 0x88));
    out[1] = in_order(_mm256_shuffle_ps(a2, a3, 0x88));
    out[2] = in_order(_mm256_shuffle_ps(a0, a1, 0xDD));
    out[3] = in_order(_mm256_shuffle_ps(a2, a3, 0xDD));
  }
}

BOWLINE_AVX2 inline __m256i in_halves(int low, int high) {
  return _mm256_setr_epi32(low, low, low, low, high, high, high, high);
}

template <class Of>
BOWLINE_AVX2 bool make_block(Order order, const float* a, int factor, int upper, Block& out,
                             float& unit) {
  __m256 elements[kParts];
  load_block(order, a, elements);
  Numbers numbers;
  if (!to_numbers<Of>(elements, numbers)) {
    return false;
  }
  store_digits<Of>(numbers, out.digits[0], kBlock);
  const __m256i times = in_halves(factor, factor * upper);
  for (int i = 0; i < Of::kDigits; ++i) {
    const __m256i digits = _mm256_load_si256(reinterpret_cast<const __m256i*>(out.digits[i]));
    const __m256i sums = sums_of_fours(_mm256_set1_epi8(1), digits);
    _mm256_store_si256(reinterpret_cast<__m256i*>(out.start[i]), _mm256_mullo_epi32(sums, times));
  }
  unit = numbers.unit;
  return true;
}

// Loads a block of quantized values into both halves of a register.
template <Order kOrder>
BOWLINE_VNNI inline __m512i load_codes(const std::byte* from) {
  if constexpr (kOrder == Order::bytes) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_xor_si512(_mm512_broadcast_i64x4(codes),
                            _mm512_set1_epi8(static_cast<char>(0x80)));
  } else {
    // Low nibbles in one half, high nibbles in the other.
    const __m512i bytes =
        _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    const __m256i nibbles = in_halves(0x0F0F0F0F, static_cast<int>(0xF0F0F0F0u));
    return _mm512_and_si512(bytes, _mm512_broadcast_i64x4(nibbles));
  }
}

template <DType kType>
BOWLINE_VNNI inline float load_scale(const std::byte* from) {
  if constexpr (kType == DType::f32) {
    float scale;
    std::memcpy(&scale, from, sizeof(scale));
    return scale;
  } else {
    uint16_t bits;
    std::memcpy(&bits, from, sizeof(bits));
    return kType == DType::f16 ? _cvtsh_ss(bits)
                               : std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
}

// Bytes of a block that starts with its scale.
constexpr size_t with_scale(Order order) {
  return sizeof(uint16_t) + (order == Order::bytes ? kBlock : kBlock / 2);
}

// Gathers the scales of a chunk of blocks from two vectors, which end at or before the end of the
// last block.
template <Order kOrder>
BOWLINE_VNNI inline __m128i load_scales_of_blocks(const std::byte* from) {
  constexpr auto at = [](size_t i) {
    return static_cast<int16_t>(i * with_scale(kOrder) / sizeof(uint16_t) % 64);
  };
  const __m512i words = _mm512_castsi128_si512(
      _mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)));
  const auto* const v = reinterpret_cast<const __m512i*>(from);
  const __m128i low = _mm512_castsi512_si128(
      _mm512_permutex2var_epi16(_mm512_loadu_si512(v), words, _mm512_loadu_si512(v + 1)));
  if constexpr (kOrder != Order::bytes) {
    return low;
  } else {
    const __m128i high = _mm512_castsi512_si128(
        _mm512_permutex2var_epi16(_mm512_loadu_si512(v + 2), words, _mm512_loadu_si512(v + 3)));
    return _mm_mask_blend_epi16(0xF0, low, high);
  }
}

// The scales of a chunk, at the start of each block or contiguous.
template <DType kType, Order kOrder>
BOWLINE_VNNI inline __m256 load_scales(const std::byte* from, size_t stride) {
  if constexpr (kType == DType::f32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
  } else {
    const __m128i halves = stride == sizeof(uint16_t)
                               ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(from))
                               : load_scales_of_blocks<kOrder>(from);
    return kType == DType::f16
               ? _mm256_cvtph_ps(halves)
               : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
}

// Quantized rows of one kind, with their strides in registers.
template <Order kOrder, DType kScale, bool kByRow, bool kZeros>
struct Kind {
  static constexpr Order order = kOrder;
  static constexpr DType scale = kScale;
  static constexpr bool by_row = kByRow;  // one scale per row
  static constexpr bool zeros = kZeros;

  explicit Kind(const CodeLayout& l)
      : block_bytes(kByRow ? kBlock : l.block_bytes),
        scale_block(l.scale_block),
        zero_block(kByRow ? 0 : l.zero_block) {}
  size_t block_bytes;
  size_t scale_block;
  size_t zero_block;
};

// The factors of the sums of `count` blocks of a row, from block `first` on.
template <class Kind>
BOWLINE_VNNI inline void load_factors(const Kind& kind, const CodeRow& row, size_t first,
                                      size_t count, const float* units, float* factors) {
  const size_t stride = kind.scale_block;
  const std::byte* const scales = row.scales + first * stride;
  if (count < kChunk) {
    for (size_t i = 0; i < count; ++i) {
      factors[i] = units[first + i] * load_scale<Kind::scale>(scales + i * stride);
    }
    return;
  }
  for (size_t i = 0; i < count; i += kChunk) {
    // The last chunk overlaps the previous chunk.
    const size_t at = std::min(i, count - kChunk);
    const __m256 some = load_scales<Kind::scale, Kind::order>(scales + at * stride, stride);
    _mm256_storeu_ps(factors + at, _mm256_mul_ps(_mm256_loadu_ps(units + first + at), some));
  }
}

// Separate sums per digit of a row. Their weights are multiplied at the end.
struct DigitSums {
  __m512 two;
  __m256 third;
};

// Adds factor times the products with block i of the row, less the zero points.
template <class Of, class Kind>
BOWLINE_VNNI inline void add_block(const Kind& kind, const CodeRow& row, size_t i,
                                   const LoadedBlock& b, float factor, DigitSums& sums) {
  __m512i start = b.start;
  __m256i third_start = b.third_start;
  if constexpr (Kind::zeros) {
    const int zero = static_cast<int8_t>(row.zeros[i * kind.zero_block]);
    const int times = -zero - offset_of(Kind::order);
    start = _mm512_mullo_epi32(start, _mm512_set1_epi32(times));
    third_start = _mm256_mullo_epi32(third_start, _mm256_set1_epi32(times));
  }
  const __m512i codes = load_codes<Kind::order>(row.codes + i * kind.block_bytes);
  sums.two = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start, codes, b.digits)),
                             _mm512_set1_ps(factor), sums.two);
  if constexpr (Of::kDigits == 3) {
    const __m256i dot = _mm256_dpbusd_epi32(third_start, _mm512_castsi512_si256(codes), b.third);
    sums.third = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_set1_ps(factor), sums.third);
  }
}

// The weights of the lanes of the digit sums: of two digits, or of the third and lowest digit,
// whose upper lanes are empty.
BOWLINE_VNNI inline __m512 values_of_lanes(Order order, int first, int second) {
  const __m512i digits = _mm512_inserti64x4(_mm512_set1_epi32(second), _mm256_set1_epi32(first), 0);
  const float upper = 1 / static_cast<float>(upper_of(order));
  return _mm512_mul_ps(_mm512_cvtepi32_ps(digits), _mm512_broadcast_f32x8(_mm256_setr_ps(
                                                       1, 1, 1, 1, upper, upper, upper, upper)));
}

// Number of blocks whose factors are computed together.
constexpr size_t kSome = 64;

// Four rows share the loaded block of a. Contiguous rows are prefetched in memory order, because
// hardware prefetching does not detect one stream in four.
template <class Of, class Kind>
BOWLINE_VNNI inline __m128 dots_of_blocks(const Kind& kind, const CodeRow* row, const IntegerRow& a,
                                          size_t first, size_t count, size_t ahead,
                                          const float (*factors)[kSome]) {
  const size_t bytes = kRows * kind.block_bytes;
  DigitSums digits[kRows] = {};
  for (size_t k = 0; k < count; ++k) {
    const size_t i = first + k;
    _mm_prefetch(row[0].codes + i * bytes + ahead, _MM_HINT_T0);
    if constexpr (Kind::order == Order::bytes) {
      _mm_prefetch(row[0].codes + i * bytes + ahead + kLine, _MM_HINT_T0);
    }
    const LoadedBlock block = load<Of>(a.blocks[i]);
    // With one scale per row, the common scale is multiplied later.
    const auto factor = [&](size_t j) { return Kind::by_row ? a.units[i] : factors[j][k]; };
    add_block<Of>(kind, row[0], i, block, factor(0), digits[0]);
    add_block<Of>(kind, row[1], i, block, factor(1), digits[1]);
    add_block<Of>(kind, row[2], i, block, factor(2), digits[2]);
    add_block<Of>(kind, row[3], i, block, factor(3), digits[3]);
  }
  const __m512 values = values_of_lanes(Kind::order, 1 << (Of::kDigits - 1) * Of::kDigitBits,
                                        1 << (Of::kDigits - 2) * Of::kDigitBits);
  const __m512 third_values = values_of_lanes(Kind::order, 1, 0);
  __m512 lanes[kRows];
  for (size_t j = 0; j < kRows; ++j) {
    lanes[j] = _mm512_mul_ps(digits[j].two, values);
    if constexpr (Of::kDigits == 3) {
      lanes[j] = _mm512_fmadd_ps(_mm512_zextps256_ps512(digits[j].third), third_values, lanes[j]);
    }
  }
  return sums_of_lanes(lanes);
}

// A step processes up to kSome blocks of four rows. The factors of a step are computed one step
// ahead, because a load that is narrower than the preceding store must wait until the store reaches
// the cache. The factors past the last step are unused.
template <class Of, class Kind>
BOWLINE_VNNI void dots_of_rows(const Codes& codes, size_t first, size_t count, const IntegerRow& a,
                               float* out) {
  const CodeLayout& l = codes.layout;
  const Kind kind(l);
  const size_t blocks = l.columns / kBlock;
  const size_t longest = std::min(kSome, blocks);
  const size_t ahead =
      Kind::by_row ? kAhead : std::max(kAhead, 2 * kRows * longest * kind.block_bytes);
  // Past the end, the last row is repeated.
  const auto row_at = [&](size_t n) { return codes.row(first + std::min(n, count - 1)); };
  alignas(64) float factors[2][kRows][kSome];
  const auto find_factors = [&](size_t n, size_t block, float(*to)[kSome]) BOWLINE_VNNI {
    for (size_t j = 0; j < kRows; ++j) {
      load_factors(kind, row_at(n + j), block, std::min(kSome, blocks - block), a.units, to[j]);
    }
  };
  if constexpr (!Kind::by_row) {
    find_factors(0, 0, factors[0]);
  }
  size_t now = 0;
  for (size_t n = 0; n < count; n += kRows) {
    const CodeRow row[kRows] = {row_at(n), row_at(n + 1), row_at(n + 2), row_at(n + 3)};
    __m128 sums = _mm_setzero_ps();
    for (size_t block = 0; block < blocks; block += kSome, now ^= 1) {
      if constexpr (!Kind::by_row) {
        const bool ends = block + kSome >= blocks;
        find_factors(ends ? n + kRows : n, ends ? 0 : block + kSome, factors[now ^ 1]);
      }
      sums =
          _mm_add_ps(sums, dots_of_blocks<Of>(kind, row, a, block, std::min(kSome, blocks - block),
                                              ahead, factors[now]));
    }
    alignas(16) float four[kRows];
    _mm_store_ps(four, sums);
    for (size_t j = 0; j < std::min(kRows, count - n); ++j) {
      out[n + j] = Kind::by_row ? four[j] * load_scale<Kind::scale>(row[j].scales) : four[j];
    }
  }
}

using DotsOfRows = void (*)(const Codes& codes, size_t first, size_t count, const IntegerRow& a,
                            float* out);

template <class Of, Order kOrder, bool kByRow, bool kZeros>
DotsOfRows by_scale(const CodeLayout& l) {
  return l.scale_type == DType::f16    ? dots_of_rows<Of, Kind<kOrder, DType::f16, kByRow, kZeros>>
         : l.scale_type == DType::bf16 ? dots_of_rows<Of, Kind<kOrder, DType::bf16, kByRow, kZeros>>
                                       : dots_of_rows<Of, Kind<kOrder, DType::f32, kByRow, kZeros>>;
}

template <class Of, Order kOrder, bool kByRow = false>
DotsOfRows by_zeros(const CodeLayout& l) {
  return l.zero_points ? by_scale<Of, kOrder, kByRow, true>(l)
                       : by_scale<Of, kOrder, kByRow, false>(l);
}

template <class Of>
DotsOfRows dots_for(const CodeLayout& l) {
  switch (order_of(l)) {
    case Order::bytes:
      return l.block >= l.columns ? by_zeros<Of, Order::bytes, true>(l)
                                  : by_zeros<Of, Order::bytes>(l);
    case Order::pairs:
      return by_zeros<Of, Order::pairs>(l);
    case Order::halves:
      return by_zeros<Of, Order::halves>(l);
  }
  return nullptr;
}

}  // namespace

size_t integer_row_floats(size_t columns) {
  return kHasQuantized ? std::max(floats_of_blocks(columns / kBlock), block_row_floats(columns))
                       : 0;
}

// True if the products are those of block_dots.h. The products of this file need VNNI.
static bool is_of_spans(const CodeLayout& layout) {
  return layout.format != nullptr && (layout.bits == 0 || !has_vnni());
}

bool has_integer_dots(const CodeLayout& layout) {
  return kHasQuantized && allowed &&
         (is_of_spans(layout) ? has_block_dots(*layout.format, layout.columns)
                              : has_vnni() && has_blocks(layout));
}

bool to_integers(const CodeLayout& layout, IntegersOf of, const float* a, float* row) {
  if (is_of_spans(layout)) {
    return to_block_integers(of, a, layout.columns, row);
  }
  const Order order = order_of(layout);
  const int factor = layout.zero_points ? 1 : -layout.zero - offset_of(order);
  const auto make = of == IntegersOf::bf16 ? make_block<OfBf16> : make_block<OfF32>;
  const size_t blocks = layout.columns / kBlock;
  auto* const to = reinterpret_cast<Block*>(row + floats_of_units(blocks));
  for (size_t i = 0; i < blocks; ++i) {
    if (!make(order, a + i * kBlock, factor, upper_of(order), to[i], row[i])) {
      return false;
    }
  }
  return true;
}

template <class Of>
void integer_dots_of(const Codes& codes, size_t first, size_t count, const float* row, float* out) {
  const IntegerRow a(row, codes.layout.columns / kBlock);
  dots_for<Of>(codes.layout)(codes, first, count, a, out);
}

IntegerDots integer_dots(const CodeLayout& layout, IntegersOf of) {
  if (is_of_spans(layout)) {
    return block_dots(*layout.format, of);
  }
  return of == IntegersOf::bf16 ? integer_dots_of<OfBf16> : integer_dots_of<OfF32>;
}

}  // namespace bowline::detail::cpu

#elif defined(__aarch64__)
#include <algorithm>

#include "compute/code_dots.h"

namespace bowline::detail::cpu {

size_t integer_row_floats(size_t columns) {
  return kHasQuantized ? std::max(code_row_floats(columns), block_row_floats(columns)) : 0;
}

bool has_integer_dots(const CodeLayout& layout) {
  return kHasQuantized && allowed &&
         (layout.bits == 0 ? has_block_dots(*layout.format, layout.columns)
                           : has_code_dots(layout));
}

bool to_integers(const CodeLayout& layout, IntegersOf of, const float* a, float* row) {
  return layout.bits == 0 ? to_block_integers(of, a, layout.columns, row)
                          : to_code_integers(layout, of, a, row);
}

IntegerDots integer_dots(const CodeLayout& layout, IntegersOf of) {
  return layout.bits == 0 ? block_dots(*layout.format, of) : code_dots(layout, of);
}

}  // namespace bowline::detail::cpu

#else

namespace bowline::detail::cpu {

size_t integer_row_floats(size_t) { return 0; }
bool has_integer_dots(const CodeLayout&) { return false; }
bool to_integers(const CodeLayout&, IntegersOf, const float*, float*) { return false; }
IntegerDots integer_dots(const CodeLayout&, IntegersOf) { return nullptr; }

}  // namespace bowline::detail::cpu

#endif
