// Dequantization to f32, in vectors. Included once per instruction set.
#if defined(BOWLINE_CPU_CODES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BOWLINE_CPU_CODES_INL_H
#undef BOWLINE_CPU_CODES_INL_H
#else
#define BOWLINE_CPU_CODES_INL_H
#endif

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/float16.h"
#include "compute/codes.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using CodeTag = hn::ScalableTag<float>;

constexpr size_t kUsualBlock = 32;

// x = scale * (code - zero)
struct Step {
  float scale;
  int zero;

  float of(int code) const { return scale * static_cast<float>(code - zero); }
  template <class V>
  HWY_INLINE hn::Vec<CodeTag> of_codes(V code) const {
    const CodeTag d;
    const hn::RebindToSigned<CodeTag> di;
    return hn::Mul(hn::Set(d, scale), hn::ConvertTo(d, hn::Sub(code, hn::Set(di, zero))));
  }
};

// Like to_f32() of base/float16.h, with branches only for infinities and NaN.
HWY_INLINE float load_f16(const std::byte* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  if ((bits & 0x7C00) == 0x7C00) {
    return to_f32(f16{bits});
  }
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7FFF) << 13;
  const float value = std::bit_cast<float>(magnitude) * 0x1p112f;
  // q4_0 has as many negative scales as positive scales, so a branch would be mispredicted half of
  // the time.
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

HWY_INLINE float load_scale(const std::byte* from, DType type) {
  if (type == DType::f16) {
    return load_f16(from);
  }
  if (type == DType::bf16) {
    uint16_t bits;
    std::memcpy(&bits, from, sizeof(bits));
    return to_f32(bf16{bits});
  }
  float x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}

HWY_INLINE void decode_bytes(const uint8_t* HWY_RESTRICT codes, size_t n, Step step,
                             float* HWY_RESTRICT out) {
  const CodeTag d;
  const hn::RebindToSigned<CodeTag> di;
  const hn::Rebind<int8_t, CodeTag> d8;
  const auto* const from = reinterpret_cast<const int8_t*>(codes);
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(step.of_codes(hn::PromoteTo(di, hn::LoadU(d8, from + i))), d, out + i);
  }
  for (; i < n; ++i) {
    out[i] = step.of(from[i]);
  }
}

template <class V>
HWY_INLINE hn::Vec<hn::RebindToSigned<CodeTag>> nibbles(V bytes) {
  const hn::RebindToSigned<CodeTag> di;
  return hn::And(bytes, hn::Set(di, 15));
}

// One nibble of each byte: the low or the high nibble.
template <int kShift>
HWY_INLINE void decode_nibbles(const uint8_t* HWY_RESTRICT codes, size_t n, Step step,
                               float* HWY_RESTRICT out) {
  const CodeTag d;
  const hn::RebindToSigned<CodeTag> di;
  const hn::Rebind<uint8_t, CodeTag> d8;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto bytes = hn::PromoteTo(di, hn::LoadU(d8, codes + i));
    hn::StoreU(step.of_codes(nibbles(hn::ShiftRight<kShift>(bytes))), d, out + i);
  }
  for (; i < n; ++i) {
    out[i] = step.of(codes[i] >> kShift & 15);
  }
}

// Elements [first, first + n) of a block in which neighbours share bytes.
HWY_INLINE void decode_pairs(const uint8_t* HWY_RESTRICT codes, size_t first, size_t n, Step step,
                             float* HWY_RESTRICT out) {
  const CodeTag d;
  const hn::RebindToSigned<CodeTag> di;
  const hn::Rebind<uint8_t, CodeTag> d8;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  if (first % 2 == 1 && n > 0) {
    out[i++] = step.of(codes[first / 2] >> 4);
  }
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto bytes = hn::PromoteTo(di, hn::LoadU(d8, codes + (first + i) / 2));
    hn::StoreInterleaved2(step.of_codes(nibbles(bytes)),
                          step.of_codes(nibbles(hn::ShiftRight<4>(bytes))), d, out + i);
  }
  for (; i < n; ++i) {
    out[i] = step.of(codes[(first + i) / 2] >> ((first + i) % 2 * 4) & 15);
  }
}

// The same for a block in which elements i and i + half share a byte.
HWY_INLINE void decode_halves(const uint8_t* HWY_RESTRICT codes, size_t half, size_t first,
                              size_t n, Step step, float* HWY_RESTRICT out) {
  if (n == kUsualBlock && half == kUsualBlock / 2) {
    decode_nibbles<0>(codes, kUsualBlock / 2, step, out);
    decode_nibbles<4>(codes, kUsualBlock / 2, step, out + kUsualBlock / 2);
    return;
  }
  if (n == 2 * half) {
    decode_nibbles<0>(codes, half, step, out);
    decode_nibbles<4>(codes, half, step, out + half);
    return;
  }
  const size_t end = first + n;
  const size_t low = std::min(end, std::max(first, half));
  decode_nibbles<0>(codes + first, low - first, step, out);
  if (low < end) {
    decode_nibbles<4>(codes + low - half, end - low, step, out + (low - first));
  }
}

// Calls decode_block(codes, first, n, step, out) for the blocks of a run of a row.
template <class DecodeBlock>
HWY_INLINE void decode_blocks(const CodeLayout& l, const CodeRow& row, size_t first, size_t count,
                              float* HWY_RESTRICT out, DecodeBlock&& decode_block) {
  const size_t number = first / l.block;
  const std::byte* codes = row.codes + number * l.block_bytes;
  const std::byte* scale = row.scales + number * l.scale_block;
  const std::byte* zero = row.zeros + number * l.zero_block;
  size_t at = first - number * l.block;
  for (size_t i = 0; i < count; at = 0) {
    const size_t n = std::min<size_t>(l.block - at, count - i);
    const Step step{load_scale(scale, l.scale_type),
                    l.zero_points ? static_cast<int8_t>(*zero) : l.zero};
    const auto* const bytes = reinterpret_cast<const uint8_t*>(codes);
    // a compile-time constant: most encodings have this block size
    if (at == 0 && n == kUsualBlock) {
      decode_block(bytes, size_t{0}, kUsualBlock, step, out + i);
    } else {
      decode_block(bytes, at, n, step, out + i);
    }
    i += n;
    codes += l.block_bytes;
    scale += l.scale_block;
    zero += l.zero_block;
  }
}

inline void decode_run(const Codes& c, size_t row, size_t first, size_t count,
                       float* HWY_RESTRICT out) {
  const CodeLayout& l = c.layout;
  const CodeRow r = c.row(row);
  const size_t half = l.half;
  if (l.bits == 0) {
    decode_blocks_of_format(*l.format, r.scales, first, count, out);  // compute/codes.cpp
  } else if (l.bits == 8) {
    decode_blocks(l, r, first, count, out,
                  [](const uint8_t* codes, size_t at, size_t n, Step step, float* to)
                      HWY_ATTR { decode_bytes(codes + at, n, step, to); });
  } else if (half == 0) {
    decode_blocks(l, r, first, count, out,
                  [](const uint8_t* codes, size_t at, size_t n, Step step, float* to)
                      HWY_ATTR { decode_pairs(codes, at, n, step, to); });
  } else {
    decode_blocks(l, r, first, count, out,
                  [half](const uint8_t* codes, size_t at, size_t n, Step step, float* to)
                      HWY_ATTR { decode_halves(codes, half, at, n, step, to); });
  }
}

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
