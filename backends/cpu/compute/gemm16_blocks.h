// The building blocks of 16-bit products: one set of functions per multiplication method. Each
// function processes a block that fits into the caches.
#pragma once

#include <atomic>
#include <cstdint>

#include "compute/gemm_grid.h"

namespace bowline::detail::cpu {

// Operands as bits.
struct Job16 {
  GemmShape shape;
  const uint16_t* a;
  const uint16_t* b;
  uint16_t* c;
  const uint16_t* bias;              // may be null
  size_t sums_row = 0;               // elements from one row of the sums to the next
  size_t packed_row = 0;             // words from one row of packed A to the next, if A is [k, m]
  std::atomic<bool>* nan = nullptr;  // set by the bf16 blocks if a result is NaN
};

// Columns of B and rows of C per block, and rows of A that are packed at a time. A word of k holds
// one f32 or two bf16. B takes a quarter of a 1 MiB L2 cache, the sums three eighths, and A less
// than a tenth.
inline constexpr size_t kColumns16 = 256;
inline constexpr size_t kRows16 = 384;
inline constexpr size_t kPacked16 = 96;
inline constexpr size_t kWords16 = 256;

struct Blocks16 {
  size_t depth;  // elements of k per block
  size_t panel;  // columns of a tile
  // Packs `columns` and `k` of B into panels.
  void (*pack)(const Job16& job, Range columns, Range k, uint32_t* panels);
  // Computes rows of C from rows of A and the panels. sums [rows][sums_row] holds the intermediate
  // sums before the last block of k. `packed` has room for kPacked16 rows of A.
  void (*multiply)(const Job16& job, Range rows, Range columns, Range k, const uint32_t* panels,
                   uint32_t* packed, float* sums);
  // Dot products for at most kFewRows rows, with A [m, k] and B [n, k].
  void (*dots)(const Job16& job, Range columns);
};

// Null if the machine or the compiler lacks the instruction.
const Blocks16* bf16_blocks();

}  // namespace bowline::detail::cpu
