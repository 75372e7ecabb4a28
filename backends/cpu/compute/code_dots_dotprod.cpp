// See code_dots.h: with SDOT (Arm Architecture Reference Manual for A-profile, SDOT (vector)).
#include "compute/arm_extensions.h"
#include "compute/code_dots.h"

#ifdef BOWLINE_ARM_EXTENSIONS
#include <algorithm>
#include <cstring>

#include "compute/code_blocks.h"
#include "compute/row_integers_arm.h"

namespace bowline::detail::cpu {
namespace {

// Rows of weights that share the loaded digits.
constexpr size_t kRows = 4;

constexpr size_t kHalf = kCodeBlock / 2;

// 32 elements of a in the order of the quantized values, the highest digit first. A lane of `sums`
// is the sum of the elements of this lane; `start` is this sum times the zero point that all blocks
// have, negated.
struct Block {
  alignas(64) int8_t digits[kMostDigits][kCodeBlock];
  int32_t sums[4];
  int32_t start[4];
};

// Layout of a converted row: the blocks, then the unit of each block.
struct IntegerRow {
  const Block* blocks;
  const float* units;

  IntegerRow(const float* row, size_t count)
      : blocks(reinterpret_cast<const Block*>(row)),
        units(row + count * sizeof(Block) / sizeof(float)) {}
};

// The 32 elements of a block; if two values share a byte as a pair, even elements come first.
inline void load_block(Order order, const float* a, float32x4_t* out) {
  for (size_t i = 0; i < kParts / 2; ++i, a += 8) {
    if (order == Order::pairs) {
      const float32x4x2_t pair = vld2q_f32(a);
      out[i] = pair.val[0];
      out[kParts / 2 + i] = pair.val[1];
    } else {
      out[2 * i] = vld1q_f32(a);
      out[2 * i + 1] = vld1q_f32(a + 4);
    }
  }
}

template <class Of>
bool make_block(Order order, const float* a, int zero, Block& out, float& unit) {
  float32x4_t elements[kParts];
  load_block(order, a, elements);
  Numbers numbers;
  if (!to_numbers<Of>(elements, numbers)) {
    return false;
  }
  int32x4_t eight[4];  // the halves of the block added
  for (size_t i = 0; i < 4; ++i) {
    eight[i] = vaddq_s32(numbers.parts[i], numbers.parts[kParts / 2 + i]);
  }
  const int32x4_t sums = vpaddq_s32(vpaddq_s32(eight[0], eight[1]), vpaddq_s32(eight[2], eight[3]));
  vst1q_s32(out.sums, sums);
  vst1q_s32(out.start, vmulq_n_s32(sums, -zero));
  store_digits<Of>(numbers, out.digits[0], kCodeBlock);
  unit = numbers.unit;
  return true;
}

// The digits of half a block, the highest first.
template <class Of>
struct Digits {
  int8x16_t of[Of::kDigits];

  Digits(const Block& block, size_t first) {
    for (size_t i = 0; i < Of::kDigits; ++i) {
      of[i] = vld1q_s8(block.digits[i] + first);
    }
  }
};

struct LoadedCodes {
  int8x16_t first, second;  // of 16 values
};

template <Order kOrder>
inline LoadedCodes load_codes(const std::byte* from) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(from);
  const uint8x16_t first = vld1q_u8(bytes);
  if constexpr (kOrder == Order::bytes) {
    return {vreinterpretq_s8_u8(first), vreinterpretq_s8_u8(vld1q_u8(bytes + kHalf))};
  } else {
    return {vreinterpretq_s8_u8(vandq_u8(first, vdupq_n_u8(15))),
            vreinterpretq_s8_u8(vshrq_n_u8(first, 4))};
  }
}

// The sums of eight products in 32 bits: less than 2^8 * 2^20 each.
template <class Of>
BOWLINE_DOTPROD inline int32x4_t dots_of(const LoadedCodes& codes, const Digits<Of>& first,
                                         const Digits<Of>& second) {
  int32x4_t dots = vdupq_n_s32(0);
  for (size_t i = 0; i < Of::kDigits; ++i) {
    dots = i == 0 ? dots : vshlq_n_s32(dots, Of::kDigitBits);
    dots = vdotq_s32(vdotq_s32(dots, codes.first, first.of[i]), codes.second, second.of[i]);
  }
  return dots;
}

inline float load_scale(const std::byte* from, DType type) {
  uint32_t bits = 0;
  std::memcpy(&bits, from, size_of(type));
  if (type == DType::f16) {
    const uint16x4_t half = vdup_n_u16(static_cast<uint16_t>(bits));
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(half)), 0);
  }
  return std::bit_cast<float>(type == DType::f32 ? bits : bits << 16);
}

// Number of blocks whose factors are computed together.
constexpr size_t kSome = 64;

// The factors of the sums of blocks of a row. With one scale per row, it is multiplied later.
inline void find_factors(const CodeLayout& l, const std::byte* scales, const float* units,
                         size_t count, float* factors) {
  for (size_t i = 0; i < count; ++i) {
    factors[i] = units[i] * load_scale(scales + i * l.scale_block, l.scale_type);
  }
}

// Adds the products with `count` blocks of four rows, from block `first` on.
template <class Of, Order kOrder, bool kZeros>
BOWLINE_DOTPROD inline void add_blocks(const CodeRow* rows, size_t block_bytes, size_t zero_block,
                                       const Block* a, size_t first, size_t count,
                                       const float* const* factors, float32x4_t* sums) {
  for (size_t k = 0; k < count; ++k) {
    const size_t i = first + k;
    const Digits<Of> low(a[i], 0), high(a[i], kHalf);
    const int32x4_t start = vld1q_s32(kZeros ? a[i].sums : a[i].start);
    for (size_t j = 0; j < kRows; ++j) {
      const LoadedCodes codes = load_codes<kOrder>(rows[j].codes + i * block_bytes);
      int32x4_t dots = dots_of<Of>(codes, low, high);
      if constexpr (kZeros) {
        const int zero = static_cast<int8_t>(rows[j].zeros[i * zero_block]);
        dots = vmlsq_n_s32(dots, start, zero);
      } else {
        dots = vaddq_s32(dots, start);
      }
      sums[j] = vfmaq_n_f32(sums[j], vcvtq_f32_s32(dots), factors[j][k]);
    }
  }
}

template <class Of, Order kOrder, bool kZeros>
BOWLINE_DOTPROD void dots_of_rows(const Codes& codes, size_t first, size_t count, const float* row,
                                  float* out) {
  const CodeLayout& l = codes.layout;
  const bool by_row = l.block >= l.columns && l.bits == 8;
  const size_t blocks = l.columns / kCodeBlock;
  const size_t block_bytes = by_row ? kCodeBlock : l.block_bytes;
  const size_t zero_block = by_row ? 0 : l.zero_block;
  const IntegerRow a(row, blocks);
  float found[kRows][kSome];
  for (size_t n = 0; n < count; n += kRows) {
    CodeRow rows[kRows];
    float32x4_t sums[kRows];
    for (size_t j = 0; j < kRows; ++j) {  // past the end, the last row is repeated
      rows[j] = codes.row(first + std::min(n + j, count - 1));
      sums[j] = vdupq_n_f32(0);
    }
    for (size_t block = 0; block < blocks; block += kSome) {
      const size_t some = std::min(kSome, blocks - block);
      const float* factors[kRows];
      for (size_t j = 0; j < kRows; ++j) {
        factors[j] = by_row ? a.units + block : found[j];
        if (!by_row) {
          find_factors(l, rows[j].scales + block * l.scale_block, a.units + block, some, found[j]);
        }
      }
      add_blocks<Of, kOrder, kZeros>(rows, block_bytes, zero_block, a.blocks, block, some, factors,
                                     sums);
    }
    for (size_t j = 0; j < std::min(kRows, count - n); ++j) {
      const float sum = vaddvq_f32(sums[j]);
      out[n + j] = by_row ? sum * load_scale(rows[j].scales, l.scale_type) : sum;
    }
  }
}

template <class Of, bool kZeros>
IntegerDots dots_for(Order order) {
  switch (order) {
    case Order::bytes:
      return dots_of_rows<Of, Order::bytes, kZeros>;
    case Order::pairs:
      return dots_of_rows<Of, Order::pairs, kZeros>;
    case Order::halves:
      return dots_of_rows<Of, Order::halves, kZeros>;
  }
  return nullptr;
}

template <class Of>
IntegerDots dots_for(const CodeLayout& l) {
  return l.zero_points ? dots_for<Of, true>(order_of(l)) : dots_for<Of, false>(order_of(l));
}

}  // namespace

size_t code_row_floats(size_t columns) {
  return columns / kCodeBlock * (sizeof(Block) / sizeof(float) + 1);
}

bool has_code_dots(const CodeLayout& layout) { return has_dotprod() && has_blocks(layout); }

bool to_code_integers(const CodeLayout& layout, IntegersOf of, const float* a, float* row) {
  const auto make = of == IntegersOf::bf16 ? make_block<OfBf16> : make_block<OfF32>;
  const size_t blocks = layout.columns / kCodeBlock;
  auto* const to = reinterpret_cast<Block*>(row);
  auto* const units = row + blocks * sizeof(Block) / sizeof(float);
  for (size_t i = 0; i < blocks; ++i) {
    if (!make(order_of(layout), a + i * kCodeBlock, layout.zero, to[i], units[i])) {
      return false;
    }
  }
  return true;
}

IntegerDots code_dots(const CodeLayout& layout, IntegersOf of) {
  return of == IntegersOf::bf16 ? dots_for<OfBf16>(layout) : dots_for<OfF32>(layout);
}

}  // namespace bowline::detail::cpu

#elif defined(__aarch64__)

namespace bowline::detail::cpu {
size_t code_row_floats(size_t) { return 0; }
bool has_code_dots(const CodeLayout&) { return false; }
bool to_code_integers(const CodeLayout&, IntegersOf, const float*, float*) { return false; }
IntegerDots code_dots(const CodeLayout&, IntegersOf) { return nullptr; }
}  // namespace bowline::detail::cpu

#endif
