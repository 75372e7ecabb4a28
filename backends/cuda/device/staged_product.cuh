// Products of 16-bit matrices that the library computes through scratch memory, in chunks of lines.
// An operand whose lines are no multiples of 16 bytes, such as the logits of 50,257 tokens, is
// copied to lines that are. On an H100, cuBLASLt multiplies unaligned lines four to six times as
// slowly. Aligned lines are not enough: the library is just as slow if n or k is not a multiple of
// 8. Then b is copied once and gets rows of zeros.
//
// A chunk stays in the cache of the GPU until the next launch has read it. The order of every sum
// depends only on the shapes.
#pragma once

#include "kernel.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

constexpr int kPackSize = 8;  // elements of 16 bits in 16 bytes

// The smallest number of whole packs, in elements.
constexpr int64_t in_packs(int64_t elements) {
  return (elements + kPackSize - 1) / kPackSize * kPackSize;
}

// Parts of the scratch memory start at multiples of 256 bytes, as the library's workspace must.
constexpr uint64_t in_scratch(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

// Copies `bytes` bytes, and writes zeros behind them up to `padded` bytes. `bytes` is even.
// `padded` and the address `to` are multiples of 16.
void copy_with_zeros(Launch& l, void* to, const void* from, int64_t bytes, int64_t padded);

struct Staging {
  enum class Of : uint8_t { nothing, a, y };
  Of of = Of::nothing;
  DType type = DType::f16;  // of the scratch memory
  int64_t line = 0;         // elements between lines of the scratch memory
  int64_t lines = 0;        // per chunk
  bool along_k = false;     // a chunk is a part of k, not of the rows of y
  int64_t lines_b = 0;      // of a copy of b behind the chunk; 0: b is not copied
  int64_t line_b = 0;       // elements of a line of b

  uint64_t chunk_bytes() const;
  uint64_t bytes() const;  // of the chunk and the copy of b
};

// True if the product takes longer than a second launch.
bool is_large(const BlasProduct& p);

// How a product goes through scratch memory, or Of::nothing.
Staging staging_of(const BlasProduct& p, const Traits& traits);

// Scratch memory, with that of the library.
uint64_t staged_workspace(const BlasProduct& p, const Staging& s, const Blas& blas);

// Enqueues the product of a MatMul, Linear or FusedMatMul. Returns false, without doing anything,
// if the library does not support it.
bool multiply_staged(Launch& l, const BlasProduct& p, const Staging& s);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
