// The products of block_dots.h for each instruction set that has them.
#pragma once

#include "compute/block_dots.h"

namespace bowline::detail::cpu {

struct BlockDots {
  size_t span_bytes;  // of a row as integers
  // As to_block_integers().
  bool (*to_integers)(IntegersOf of, const float* a, size_t columns, float* row);
  IntegerDots (*dots)(const BlockFormat& format, IntegersOf of);
};

// Null if the kernels may not use the instructions.
const BlockDots* block_dots_vnni();
const BlockDots* block_dots_avx2();
#ifdef __aarch64__
const BlockDots* block_dots_dotprod();
#else
constexpr const BlockDots* block_dots_dotprod() { return nullptr; }
#endif

}  // namespace bowline::detail::cpu
