// Packets: some quantized values of a row that share a scale. They stay packed up to the registers,
// where bit operations convert them: no division, and no conversion instruction.
#pragma once

#include "device/codes.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

constexpr int kPiece = 8;  // values that a packet converts at once

// Values are unsigned bytes minus a zero point.
__device__ inline void values_of(uint32_t low, uint32_t high, float zero_above_two_to_23,
                                 float (&to)[kPiece]) {
  for (uint32_t i = 0; i < 4; ++i) {
    to[i] = byte_above_two_to_23(low, i) - zero_above_two_to_23;
    to[4 + i] = byte_above_two_to_23(high, i) - zero_above_two_to_23;
  }
}

// Sixteen bytes of int8 values, or of int4 values with two neighbours in a byte.
template <bool kBytes>
struct Packet {
  static constexpr int kValues = kBytes ? 16 : 32;
  static constexpr bool kHasMinimum = false;

  uint32_t words[4];
  float scale;
  float zero;  // plus 2^23, and 128 if values are signed

  // Loads values [column, column + kValues) of a row. `column` is a multiple of kValues.
  __device__ void load(const Codes& c, int64_t row, uint32_t column) {
    const uint32_t number = c.block_shift >= 0 ? column >> c.block_shift : 0;
    const uint32_t inside = c.block_shift >= 0 ? column - (number << c.block_shift) : column;
    const auto some = *reinterpret_cast<const Some<uint32_t, 4>*>(
        c.codes + row * c.row_bytes + number * c.block_bytes + (kBytes ? inside : inside / 2));
    for (int i = 0; i < 4; ++i) {
      words[i] = some.x[i];
    }
    scale = scale_of(c, row, number);
    const int point = c.zero_points
                          ? static_cast<int8_t>(c.zeros[row * c.zero_row + number * c.zero_block])
                          : c.zero;
    zero = above_two_to_23(static_cast<uint32_t>(point + (kBytes ? 128 : 0)));
  }

  // Values [kPiece * piece, kPiece * (piece + 1)) minus the zero point. They are not scaled.
  __device__ void values(int piece, float (&to)[kPiece]) const {
    if constexpr (kBytes) {
      values_of(words[2 * piece] ^ 0x80808080, words[2 * piece + 1] ^ 0x80808080, zero, to);
    } else {
      const uint32_t even = words[piece] & 0x0F0F0F0F;
      const uint32_t odd = words[piece] >> 4 & 0x0F0F0F0F;
      for (uint32_t i = 0; i < 4; ++i) {
        to[2 * i] = byte_above_two_to_23(even, i) - zero;
        to[2 * i + 1] = byte_above_two_to_23(odd, i) - zero;
      }
    }
  }
};

// A group of a block format.
template <class F>
struct FormatPacket {
  static constexpr int kValues = F::kGroup;
  static constexpr bool kHasMinimum = F::kHasMinimum;
  // Of blocks, in bytes.
  static constexpr int kAlignment = (F::kBytes & -F::kBytes) < 16 ? F::kBytes & -F::kBytes : 16;

  uint32_t words[kValues / 4];
  float scale;
  float least;
  float zero;  // plus 2^23

  __device__ void load(const Codes& c, int64_t row, uint32_t column) {
    const formats::Block block = {c.scales + row * c.scale_row + column / F::kBlock * F::kBytes,
                                  kAlignment};
    const auto group = static_cast<int>(column % F::kBlock / F::kGroup);
    F::scales(block, group, scale, least);
    BOWLINE_UNROLL
    for (int i = kValues - 4; i >= 0; i -= 4) {
      const formats::Value four = F::code(block, group, {0, i});
      words[i / 4] = four.bytes;
      zero = four.zero_above_two_to_23();
    }
  }
  __device__ void values(int piece, float (&to)[kPiece]) const {
    values_of(words[2 * piece], words[2 * piece + 1], zero, to);
  }
};

// Calls run.operator()<Packet>() with the type of the packets of quantized rows. Returns false if
// the rows are not divided into packets.
template <class F>
bool with_packets(const Codes& c, F&& run) {
  const auto address = reinterpret_cast<uintptr_t>(c.format != 0 ? c.scales : c.codes);
  const auto with_format = [&]<class P>() {
    if (address % P::kAlignment != 0) {
      return false;
    }
    run.template operator()<P>();
    return true;
  };
  switch (c.format) {
#define BOWLINE_FORMAT(name, number, ...) \
  case number:                            \
    return with_format.template operator()<FormatPacket<formats::name##_format>>();
#include "generated/formats.inc"
  }
  const bool one_block = c.block >= c.columns;
  const int64_t values = c.bits == 8 ? Packet<true>::kValues : Packet<false>::kValues;
  if (c.columns % values != 0 || (!one_block && (c.block_shift < 0 || c.block % values != 0)) ||
      address % 16 != 0 || c.row_bytes % 16 != 0 || (!one_block && c.block_bytes % 16 != 0)) {
    return false;
  }
  c.bits == 8 ? run.template operator()<Packet<true>>() : run.template operator()<Packet<false>>();
  return true;
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
