#include "compute/integer_dots.h"

#include <atomic>

namespace bowline::cpu {
namespace {

constexpr size_t kBlock = 32;
constexpr size_t kRows = 4;

std::atomic<bool> allowed{true};

// How the elements of a block lie in its codes.
enum class Order { bytes, pairs, halves };

Order order_of(const CodeLayout& l) {
  return l.bits == 8 ? Order::bytes : l.half == 0 ? Order::pairs : Order::halves;
}

bool has_blocks(const CodeLayout& l) {
  const bool by_row = l.bits == 8 && l.block >= l.columns;
  const bool halves = l.half == 0 || l.half == kBlock / 2;
  return l.columns % kBlock == 0 && (by_row || (l.block == kBlock && (l.bits == 8 || halves)));
}

}  // namespace

void allow_integer_dots(bool allow) { allowed = allow; }

}  // namespace bowline::cpu

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "compute/x86.h"
#include "core/float16.h"

#define BOWLINE_VNNI \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")))

namespace bowline::cpu {
namespace {

// How the numbers of a row become integers: digits of so many bits with a sign, and the bits of the largest number without its sign. What
// digits are multiplied with fills the rest of 32 bits.
struct OfF32 {
  static constexpr int kDigits = 3;
  static constexpr int kDigitBits = 7;
  static constexpr int kNumberBits = 20;
};
struct OfBf16 {
  static constexpr int kDigits = 2;
  static constexpr int kDigitBits = 8;
  static constexpr int kNumberBits = 14;
};
constexpr int kMostDigits = 3;

// Bytes that are fetched ahead, by lines: four blocks of 4 bits are one, of 8 bits two.
constexpr size_t kAhead = 4096;
constexpr size_t kLine = 64;

// 32 elements of a, in the order of the codes.
struct alignas(32) Block {
  int8_t digits[kMostDigits][kBlock];  // the highest first
  // Sums over four numbers, in the upper half times upper_of(); times the zero of the codes unless every block has its own.
  int32_t start[kBlock / 4];
  float unit;  // what 1 stands for
};

constexpr size_t floats_of_blocks(size_t blocks) { return blocks * sizeof(Block) / sizeof(float); }

// Codes of 4 bits in the upper half of a register stay where they lie in their bytes: they, and sums over them, count 16 times.
constexpr int upper_of(const CodeLayout& l) { return l.bits == 4 ? 16 : 1; }

// What is added to a code so that it is unsigned.
constexpr int offset_of(const CodeLayout& l) { return l.bits == 8 ? 128 : 0; }

// A block in registers.
struct LoadedBlock {
  __m256i digits[kMostDigits];
  __m256i start;
  __m256 unit;
};

BOWLINE_VNNI inline LoadedBlock load(const Block& b) {
  const auto* const digits = reinterpret_cast<const __m256i*>(b.digits);
  return {{_mm256_load_si256(digits), _mm256_load_si256(digits + 1), _mm256_load_si256(digits + 2)},
          _mm256_load_si256(reinterpret_cast<const __m256i*>(b.start)),
          _mm256_set1_ps(b.unit)};
}

// The sums of four products of `codes` with the numbers of a block, from `start` on.
template <class Of>
BOWLINE_VNNI inline __m256i dot_of_block(__m256i codes, const __m256i* digits, __m256i start) {
  // Apart from each other, so that none waits for another one.
  const __m256i zero = _mm256_setzero_si256();
  __m256i sum = _mm256_slli_epi32(_mm256_dpbusd_epi32(zero, codes, digits[0]),
                                  (Of::kDigits - 1) * Of::kDigitBits);
  if constexpr (Of::kDigits == 3) {
    sum = _mm256_add_epi32(
        sum, _mm256_slli_epi32(_mm256_dpbusd_epi32(zero, codes, digits[1]), Of::kDigitBits));
  }
  return _mm256_add_epi32(sum, _mm256_dpbusd_epi32(start, codes, digits[Of::kDigits - 1]));
}

// The 32 numbers of a block, even ones first where codes are pairs.
BOWLINE_VNNI inline void load_block(Order order, const float* a, __m512& first, __m512& second) {
  first = _mm512_loadu_ps(a);
  second = _mm512_loadu_ps(a + 16);
  if (order == Order::pairs) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const __m512 low = first;
    first = _mm512_permutex2var_ps(low, even, second);
    second = _mm512_permutex2var_ps(low, odd, second);
  }
}

// The bits of the largest magnitude: as numbers they are in the order of what they stand for.
BOWLINE_VNNI inline int32_t largest_bits(__m512 first, __m512 second) {
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  return _mm512_reduce_max_epi32(
      _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(first), magnitude),
                       _mm512_and_si512(_mm512_castps_si512(second), magnitude)));
}

// The lowest digit of 16 numbers, which become what is above it.
template <class Of>
BOWLINE_VNNI inline __m128i take_digit(__m512i& numbers) {
  constexpr int kHalf = 1 << (Of::kDigitBits - 1);
  const __m512i above =
      _mm512_srai_epi32(_mm512_add_epi32(numbers, _mm512_set1_epi32(kHalf)), Of::kDigitBits);
  const __m512i digit = _mm512_sub_epi32(numbers, _mm512_slli_epi32(above, Of::kDigitBits));
  numbers = above;
  return _mm512_cvtepi32_epi8(digit);
}

BOWLINE_VNNI inline void store_digits(__m128i first, __m128i second, int8_t* out) {
  auto* const to = reinterpret_cast<__m128i*>(out);
  _mm_store_si128(to, first);
  _mm_store_si128(to + 1, second);
}

BOWLINE_VNNI inline __m256i in_halves(int low, int high) {
  return _mm256_setr_epi32(low, low, low, low, high, high, high, high);
}

template <class Of>
BOWLINE_VNNI bool make_block(Order order, const float* a, int factor, int upper, Block& out) {
  __m512 first, second;
  load_block(order, a, first, second);
  const int32_t largest = largest_bits(first, second);
  if (largest >= 0x7F800000) {
    return false;
  }
  // 2^exponent is above the largest, and 2^(Of::kNumberBits - exponent) a number.
  const int exponent = std::max((largest >> 23) - 126, Of::kNumberBits - 126);
  const __m512 factors =
      _mm512_set1_ps(std::bit_cast<float>((Of::kNumberBits - exponent + 127) << 23));
  __m512i low = _mm512_cvtps_epi32(_mm512_mul_ps(first, factors));
  __m512i high = _mm512_cvtps_epi32(_mm512_mul_ps(second, factors));
  for (int i = Of::kDigits - 1; i > 0; --i) {
    store_digits(take_digit<Of>(low), take_digit<Of>(high), out.digits[i]);
  }
  // What is left is 64 at most, more than a digit of seven bits with a sign: it takes the eight bits of a byte.
  store_digits(_mm512_cvtepi32_epi8(low), _mm512_cvtepi32_epi8(high), out.digits[0]);
  const __m256i sums =
      dot_of_block<Of>(_mm256_set1_epi8(1), load(out).digits, _mm256_setzero_si256());
  _mm256_store_si256(reinterpret_cast<__m256i*>(out.start),
                     _mm256_mullo_epi32(sums, in_halves(factor, factor * upper)));
  out.unit = std::bit_cast<float>((exponent - Of::kNumberBits + 127) << 23);
  return true;
}

template <Order kOrder>
BOWLINE_VNNI inline __m256i load_codes(const std::byte* from) {
  if constexpr (kOrder == Order::bytes) {
    const __m256i signs = _mm256_set1_epi8(static_cast<char>(0x80));
    return _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)), signs);
  } else {
    // The low nibbles in one half and the high ones in the other.
    const __m256i bytes =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return _mm256_and_si256(bytes, in_halves(0x0F0F0F0F, static_cast<int>(0xF0F0F0F0u)));
  }
}

// In every lane.
template <DType kType>
BOWLINE_VNNI inline __m256 load_scale(const std::byte* from) {
  if constexpr (kType == DType::f32) {
    float scale;
    std::memcpy(&scale, from, sizeof(scale));
    return _mm256_set1_ps(scale);
  } else {
    int16_t bits;
    std::memcpy(&bits, from, sizeof(bits));
    if constexpr (kType == DType::f16) {
      return _mm256_cvtph_ps(_mm_set1_epi16(bits));
    } else {
      return _mm256_castsi256_ps(
          _mm256_set1_epi32(static_cast<int32_t>(uint32_t{static_cast<uint16_t>(bits)} << 16)));
    }
  }
}

// sums[j] += the lanes of v[j], those of neighbours first.
BOWLINE_VNNI inline void add_lanes(const __m256* v, float* sums) {
  const __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
  const __m128 sum = _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1));
  _mm_storeu_ps(sums, _mm_add_ps(_mm_loadu_ps(sums), sum));
}

// sum + the products with block i of the row, codes less their zeros. By row: without the one scale for all.
template <class Of, Order kOrder, DType kScale, bool kByRow, bool kZeros>
BOWLINE_VNNI inline __m256 add_block(const Codes& row, size_t i, const LoadedBlock& b, __m256 sum) {
  const CodeLayout& l = row.layout;
  __m256i start = b.start;
  if constexpr (kZeros) {
    const int zero = static_cast<int8_t>(row.zeros[kByRow ? 0 : i * l.zero_block]);
    start = _mm256_mullo_epi32(start, _mm256_set1_epi32(-zero - offset_of(l)));
  }
  const __m256i codes = load_codes<kOrder>(row.codes + i * (kByRow ? kBlock : l.block_bytes));
  const __m256 numbers = _mm256_cvtepi32_ps(dot_of_block<Of>(codes, b.digits, start));
  if constexpr (kByRow) {
    return _mm256_fmadd_ps(numbers, b.unit, sum);
  } else {
    const __m256 scale = load_scale<kScale>(row.scales + i * l.scale_block);
    return _mm256_fmadd_ps(numbers, _mm256_mul_ps(scale, b.unit), sum);
  }
}

// Four rows share what is loaded of a block. Where they lie one behind the other, memory is fetched in that order: the processor does not
// see the one stream in four.
template <class Of, Order kOrder, DType kScale, bool kByRow, bool kZeros>
BOWLINE_VNNI void dots_of_rows(const Codes& codes, const size_t* rows, const Block* blocks,
                               float* sums) {
  constexpr auto add = add_block<Of, kOrder, kScale, kByRow, kZeros>;
  const CodeLayout& l = codes.layout;
  const size_t bytes = kRows * (kByRow ? kBlock : l.block_bytes);
  const Codes row[kRows] = {codes.from_row(rows[0]), codes.from_row(rows[1]),
                            codes.from_row(rows[2]), codes.from_row(rows[3])};
  __m256 sum[kRows] = {};
  for (size_t i = 0; i < l.columns / kBlock; ++i) {
    _mm_prefetch(row[0].codes + i * bytes + kAhead, _MM_HINT_T0);
    if constexpr (kOrder == Order::bytes) {
      _mm_prefetch(row[0].codes + i * bytes + kAhead + kLine, _MM_HINT_T0);
    }
    const LoadedBlock block = load(blocks[i]);
    sum[0] = add(row[0], i, block, sum[0]);
    sum[1] = add(row[1], i, block, sum[1]);
    sum[2] = add(row[2], i, block, sum[2]);
    sum[3] = add(row[3], i, block, sum[3]);
  }
  const float upper = 1 / static_cast<float>(upper_of(l));
  const __m256 halves = _mm256_setr_ps(1, 1, 1, 1, upper, upper, upper, upper);
  for (size_t j = 0; j < kRows; ++j) {
    sum[j] = _mm256_mul_ps(sum[j], halves);
    if constexpr (kByRow) {
      sum[j] = _mm256_mul_ps(sum[j], load_scale<kScale>(row[j].scales));
    }
  }
  add_lanes(sum, sums);
}

using DotsOfRows = void (*)(const Codes& codes, const size_t* rows, const Block* blocks,
                            float* sums);

template <class Of, Order kOrder, bool kByRow, bool kZeros>
DotsOfRows by_scale(const CodeLayout& l) {
  return l.scale_type == DType::f16    ? dots_of_rows<Of, kOrder, DType::f16, kByRow, kZeros>
         : l.scale_type == DType::bf16 ? dots_of_rows<Of, kOrder, DType::bf16, kByRow, kZeros>
                                       : dots_of_rows<Of, kOrder, DType::f32, kByRow, kZeros>;
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

size_t integer_row_floats(size_t columns) { return floats_of_blocks(columns / kBlock); }

bool has_integer_dots(const CodeLayout& layout) {
  static const bool there =
      __builtin_cpu_supports("avx512vnni") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return there && allowed && has_blocks(layout);
}

bool to_integers(const CodeLayout& layout, IntegersOf of, const float* a, float* row) {
  const Order order = order_of(layout);
  const int factor = layout.zero_points ? 1 : -layout.zero - offset_of(layout);
  const auto make = of == IntegersOf::bf16 ? make_block<OfBf16> : make_block<OfF32>;
  auto* const blocks = reinterpret_cast<Block*>(row);
  for (size_t i = 0; i < layout.columns / kBlock; ++i) {
    if (!make(order, a + i * kBlock, factor, upper_of(layout), blocks[i])) {
      return false;
    }
  }
  return true;
}

template <class Of>
void integer_dots_of(const Codes& codes, const size_t* rows, const float* row, float* sums) {
  dots_for<Of>(codes.layout)(codes, rows, reinterpret_cast<const Block*>(row), sums);
}

IntegerDots integer_dots(IntegersOf of) {
  return of == IntegersOf::bf16 ? integer_dots_of<OfBf16> : integer_dots_of<OfF32>;
}

}  // namespace bowline::cpu

#else

namespace bowline::cpu {

size_t integer_row_floats(size_t) { return 0; }
bool has_integer_dots(const CodeLayout& layout) {
  static_cast<void>(has_blocks(layout));
  static_cast<void>(order_of(layout));
  return false;
}
bool to_integers(const CodeLayout&, IntegersOf, const float*, float*) { return false; }
IntegerDots integer_dots(IntegersOf) { return nullptr; }

}  // namespace bowline::cpu

#endif
