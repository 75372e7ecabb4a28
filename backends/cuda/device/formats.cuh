// The block formats of runtime/base/formats: their dialect in CUDA (formats/README.md). A Value is
// four neighbours, one in each byte of a word, so one instruction computes a bit of the formula for
// all of them.
#pragma once

#include "base/formats.h"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// An integer below 2^23 as a float plus 2^23, which is exact.
constexpr uint32_t kTwoTo23 = 0x4B000000;
__device__ inline float above_two_to_23(uint32_t x) { return __uint_as_float(kTwoTo23 | x); }
// The same for byte `i` of a word.
__device__ inline float byte_above_two_to_23(uint32_t word, uint32_t i) {
  return __uint_as_float(__byte_perm(word, kTwoTo23, 0x7650 | i));
}

namespace formats {

#define FUNCTION __device__ inline

// A block begins at a multiple of `alignment` bytes.
struct Block {
  const uint8_t* at;
  int alignment;
};

// Four neighbours, from element `first` on, which is a multiple of four. The other part of an
// offset in bytes is the same for all elements of a group. So loops over the elements of a group
// compute addresses once.
struct Index {
  int base;
  int first;
};
__device__ inline Index operator+(int base, Index i) { return {base + i.base, i.first}; }
// n is a multiple of four.
__device__ inline Index operator%(Index i, int n) { return {0, (i.base + i.first) % n}; }
__device__ inline int operator/(Index i, int n) { return (i.base + i.first) / n; }

// A value is its byte, unsigned, minus `zero`. Operators of bits do not change `zero`, which is 0
// where formulas use them.
struct Value {
  uint32_t bytes;
  uint32_t zero;

  __device__ float zero_above_two_to_23() const { return above_two_to_23(zero); }
};
__device__ inline uint32_t four_of(uint32_t byte) { return 0x01010101 * byte; }
__device__ inline Value operator&(Value v, int bits) {
  return {v.bytes & four_of(static_cast<uint32_t>(bits)), 0};
}
__device__ inline Value operator|(Value v, Value w) { return {v.bytes | w.bytes, 0}; }
__device__ inline Value operator<<(Value v, int n) { return {v.bytes << n, 0}; }
__device__ inline Value operator>>(Value v, int n) {
  return {v.bytes >> n & four_of(0xFFU >> n), 0};
}
__device__ inline Value operator-(Value v, int n) {
  return {v.bytes, v.zero + static_cast<uint32_t>(n)};
}

// The bits of an integer from one on. Only x >> i & 1 has a meaning.
struct Bits {
  uint32_t four;
};
__device__ inline Bits operator>>(int x, Index i) {
  return {static_cast<uint32_t>(x) >> i.first & 15};
}
__device__ inline Value operator&(Bits bits, int) {
  return {bits.four * 0x00204081 & four_of(1), 0};  // bit k moves to bit 8 k
}

__device__ inline int byte_at(Block b, int i) { return b.at[i]; }
__device__ inline int signed_at(Block b, int i) { return static_cast<int8_t>(b.at[i]); }
// Word `i` from an address on, by an access of 16, 8 or 4 bytes. A loop over words does each access
// once.
__device__ inline uint32_t word_of_16_bytes(const uint8_t* at, int i) {
  __extension__ using Words = unsigned __int128;  // nvcc reads a structure member by member
  return static_cast<uint32_t>(reinterpret_cast<const Words*>(at)[i / 4] >> (i % 4 * 32));
}
__device__ inline uint32_t word_of_8_bytes(const uint8_t* at, int i) {
  return static_cast<uint32_t>(reinterpret_cast<const uint64_t*>(at)[i / 2] >> (i % 2 * 32));
}
__device__ inline uint32_t word_of_4_bytes(const uint8_t* at, int i) {
  return reinterpret_cast<const uint32_t*>(at)[i];
}
// Reads only aligned words that contain one of the bytes. A loop over the elements of a group reads
// each word once if it runs downwards.
__device__ inline Value byte_at(Block b, Index i) {
  const uint8_t* const at = b.at + i.base;
  const int word = i.first / 4;
  if (b.alignment % 16 == 0 && i.base % 16 == 0) {
    return {word_of_16_bytes(at, word), 0};
  }
  if (b.alignment % 8 == 0 && i.base % 8 == 0) {
    return {word_of_8_bytes(at, word), 0};
  }
  if (b.alignment % 4 == 0 && i.base % 4 == 0) {
    return {word_of_4_bytes(at, word), 0};
  }
  const auto offset = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(at) % 4);
  const uint32_t high = offset == 0 ? 0 : word_of_4_bytes(at - offset, word + 1);
  return {__funnelshift_r(word_of_4_bytes(at - offset, word), high, 8 * offset), 0};
}
__device__ inline Value signed_at(Block b, Index i) {
  return {byte_at(b, i).bytes ^ four_of(128), 128};
}
// Blocks with f16 scales, and their scales, start at even addresses.
__device__ inline float half_at(Block b, int i) {
  return read(reinterpret_cast<const __half*>(b.at + i));
}
__device__ inline float float_of_bits(int bits) {
  return __uint_as_float(static_cast<unsigned>(bits));
}
// Elements of a table of signed bytes, by values below 16.
__device__ inline Value look_up(uint64_t low, uint64_t high, Value i) {
  const auto half_of = [](uint64_t table, int n) {
    return static_cast<uint32_t>(table >> (32 * n)) ^ four_of(128);
  };
  // The values as hexadecimal digits: each selects a byte of both halves of the table.
  const uint32_t digits = __byte_perm(i.bytes | i.bytes >> 4, 0, 0x4420);
  const uint32_t of_low = __byte_perm(half_of(low, 0), half_of(low, 1), digits);
  const uint32_t of_high = __byte_perm(half_of(high, 0), half_of(high, 1), digits);
  return {__byte_perm(of_low, of_high, 0x3210 | (digits & 0x8888) >> 1), 128};
}

#include "base/format_formulas.inc"

#undef FUNCTION

}  // namespace formats
}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
