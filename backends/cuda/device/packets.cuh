// Packets: 16 bytes of quantized values of a row, with one scale. They stay packed up to the
// registers, where bit operations convert them: no division, and no conversion instruction.
#pragma once

#include "device/codes.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

constexpr int kPiece = 8;  // values that a packet converts at once

// Sixteen bytes from any address. Only aligned words that contain one of the bytes are read.
template <bool kAligned>
__device__ void load_bytes16(const uint8_t* at, uint32_t (&to)[4]) {
  if constexpr (kAligned) {
    const auto some = *reinterpret_cast<const Some<uint32_t, 4>*>(at);
    for (int i = 0; i < 4; ++i) {
      to[i] = some.x[i];
    }
  } else {
    const auto offset = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(at) % 4);
    const auto* const words = reinterpret_cast<const uint32_t*>(at - offset);
    uint32_t low = words[0];
    for (int i = 0; i < 4; ++i) {
      const uint32_t high = i < 3 || offset != 0 ? words[i + 1] : 0;
      to[i] = __funnelshift_r(low, high, 8 * offset);
      low = high;
    }
  }
}

// An integer below 2^23 as a float plus 2^23, which is exact.
constexpr uint32_t kTwoTo23 = 0x4B000000;
__device__ inline float above_two_to_23(uint32_t x) { return __uint_as_float(kTwoTo23 | x); }
// The same for byte `i` of a word.
__device__ inline float byte_above_two_to_23(uint32_t word, uint32_t i) {
  return __uint_as_float(__byte_perm(word, kTwoTo23, 0x7650 | i));
}

// How a row is divided into packets. Block sizes are powers of two, or one block is a row.
enum class PacketOrder {
  bytes,   // 8 bits, signed
  pairs,   // 4 bits, neighbours in a byte
  halves,  // 4 bits, elements i and i + 16 in a byte
};

template <PacketOrder kOrder, bool kAligned>
struct Packet {
  static constexpr int kValues = kOrder == PacketOrder::bytes ? 16 : 32;

  uint32_t words[4];
  float scale;
  float zero;  // plus 2^23, and 128 if values are signed

  // Loads values [column, column + kValues) of a row. `column` is a multiple of kValues.
  __device__ void load(const Codes& c, int64_t row, uint32_t column) {
    constexpr bool kBytes = kOrder == PacketOrder::bytes;
    const uint32_t number = c.block_shift >= 0 ? column >> c.block_shift : 0;
    const uint32_t inside = c.block_shift >= 0 ? column - (number << c.block_shift) : column;
    load_bytes16<kAligned>(
        c.codes + row * c.row_bytes + number * c.block_bytes + (kBytes ? inside : inside / 2),
        words);
    scale = scale_of(c, row, number);
    const int point = c.zero_points
                          ? static_cast<int8_t>(c.zeros[row * c.zero_row + number * c.zero_block])
                          : c.zero;
    zero = above_two_to_23(static_cast<uint32_t>(point + (kBytes ? 128 : 0)));
  }

  // Values [kPiece * piece, kPiece * (piece + 1)) minus the zero point. They are not scaled.
  __device__ void values(int piece, float (&to)[kPiece]) const {
    if constexpr (kOrder == PacketOrder::pairs) {
      const uint32_t even = words[piece] & 0x0F0F0F0F;
      const uint32_t odd = words[piece] >> 4 & 0x0F0F0F0F;
      for (uint32_t i = 0; i < 4; ++i) {
        to[2 * i] = byte_above_two_to_23(even, i) - zero;
        to[2 * i + 1] = byte_above_two_to_23(odd, i) - zero;
      }
    } else {
      for (int half = 0; half < 2; ++half) {
        const uint32_t word = kOrder == PacketOrder::bytes
                                  ? words[2 * piece % 4 + half] ^ 0x80808080
                                  : words[piece % 2 * 2 + half] >> (piece / 2 * 4) & 0x0F0F0F0F;
        for (uint32_t i = 0; i < 4; ++i) {
          to[4 * half + static_cast<int>(i)] = byte_above_two_to_23(word, i) - zero;
        }
      }
    }
  }
};

// Calls run.operator()<Packet>() with the type of the packets of quantized rows. Returns false if
// the rows are not divided into packets.
template <class F>
bool with_packets(const Codes& c, F&& run) {
  if (c.bits != 8 && c.bits != 4) {
    return false;
  }
  const bool one_block = c.block >= c.columns;
  const int64_t values = c.bits == 8 ? 16 : 32;
  if (c.bits == 0) {  // a block format that strides cannot describe
    return false;
  }
  if (c.columns % values != 0 || (!one_block && (c.block_shift < 0 || c.block % values != 0))) {
    return false;
  }
  if (c.half != 0) {
    if (c.half != 16 || c.block != 32) {
      return false;
    }
    run.template operator()<Packet<PacketOrder::halves, false>>();
    return true;
  }
  const bool aligned = reinterpret_cast<uintptr_t>(c.codes) % 16 == 0 && c.row_bytes % 16 == 0 &&
                       (one_block || c.block_bytes % 16 == 0);
  if (c.bits == 8) {
    aligned ? run.template operator()<Packet<PacketOrder::bytes, true>>()
            : run.template operator()<Packet<PacketOrder::bytes, false>>();
    return true;
  }
  if (!aligned) {  // no form of an encoding has such rows
    return false;
  }
  run.template operator()<Packet<PacketOrder::pairs, true>>();
  return true;
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
