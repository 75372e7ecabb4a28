// What a product of 16-bit operands is made of: one set of functions per way to multiply, each on a
// block that fits into the caches.
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
  size_t sums_row = 0;               // elements from a row of the sums to the next
  size_t packed_row = 0;             // words from a row of packed A to the next, where A is [k, m]
  std::atomic<bool>* nan = nullptr;  // set by the blocks of bf16 where a result is NaN
};

// Columns of B and rows of C in a block, rows of A that are packed at a time; words of k, of one
// f32 or of two bf16. Of a 1 MiB L2 cache B takes a quarter, the sums three eighths and A less than
// a tenth.
inline constexpr size_t kColumns16 = 256;
inline constexpr size_t kRows16 = 384;
inline constexpr size_t kPacked16 = 96;
inline constexpr size_t kWords16 = 256;

struct Blocks16 {
  size_t depth;  // elements of k in a block
  size_t panel;  // columns of a tile
  // B of `columns` and `k` to panels.
  void (*pack)(const Job16& job, Range columns, Range k, uint32_t* panels);
  // Rows of C from rows of A and the panels. sums [rows][sums_row] holds what is there before the
  // last block of k; `packed` has room for kPacked16 rows of A.
  void (*multiply)(const Job16& job, Range rows, Range columns, Range k, const uint32_t* panels,
                   uint32_t* packed, float* sums);
  // At most kFewRows rows, A [m, k] and B [n, k]: dot products.
  void (*dots)(const Job16& job, Range columns);
};

// Null: the machine does not have the instruction, or the compiler not.
const Blocks16* bf16_blocks();

}  // namespace bowline::detail::cpu
