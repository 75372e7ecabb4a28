// Products of several rows with rows of a block format (base/formats.h), in integers: with the
// matrix products of bytes of aarch64 (FEAT_I8MM).
//
//   C[r, j] = sum over k of A[r, k] * scale(j, k) * (code(j, k) - offset) - A[r, k] * least(j, k)
//
// Numerics  rows become integers as in integer_dots.h. Sums of 16 elements are exact. In f32, two
//           such sums are multiplied by their scales and added, and the result is multiplied by the
//           unit of their 32 elements, in ascending order. A span of 256 elements (spans.h) is
//           summed before it is added to C. The bits do not depend on the number of rows.
#pragma once

#include "compute/arm_extensions.h"
#include "compute/gemm_grid.h"

namespace bowline::detail::cpu {

struct CodeRowsJob {
  const float* a;
  size_t a_row;  // elements from one row to the next
  const Codes* codes;
  IntegersOf of;
  float* c;
  size_t c_row;
  bool accumulate;    // add to the old values of C
  const float* bias;  // (optional)
};

inline constexpr size_t kCodeRowsFloats = 12288;

#ifdef BOWLINE_ARM_EXTENSIONS
// True if the machine has the instructions, the encoding is a block format whose rows consist of
// spans, and integer products are allowed.
bool has_code_rows(const CodeLayout& layout);

// True if integers can represent all elements: they are finite.
bool are_finite(const float* a, size_t a_row, size_t rows, size_t columns);

// Computes a part of C. `scratch` has kCodeRowsFloats floats and is aligned to 64 bytes.
void code_rows(const CodeRowsJob& job, Range rows, Range columns, float* scratch);
#else
constexpr bool has_code_rows(const CodeLayout&) { return false; }
constexpr bool are_finite(const float*, size_t, size_t, size_t) { return false; }
inline void code_rows(const CodeRowsJob&, Range, Range, float*) {}
#endif

}  // namespace bowline::detail::cpu
