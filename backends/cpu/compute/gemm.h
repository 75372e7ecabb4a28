// Matrix product in f32. Every operand is row-major with a leading dimension.
//
//   C[m, n] = sum over k of A[m, k] * B[k, n]   (+ C[m, n])   (+ bias[n])
//
// Shapes    C [m, n], op(A) [m, k], op(B) [k, n], bias [n]; each size may be 0.
// Numerics  f32 sums with fused multiply-add if the machine has it, over ascending blocks of k with
//           a fixed size. The bits depend on the instruction set, the shape and the layout, never
//           on the number of threads.
// Threads   uses the pool; one caller at a time. Operands must not overlap C; nothing is allocated.
#pragma once

#include <cstddef>

#include "compute/codes.h"
#include "compute/integer_dots.h"
#include "threads.h"

namespace bowline::detail::cpu {

// The first letter is for A, the second for B. n: stored as in the formula. t: stored transposed (A
// [k, m], B [n, k]).
enum class GemmLayout { nn, nt, tn, tt };

struct GemmShape {
  GemmLayout layout = GemmLayout::nn;
  size_t m = 0;
  size_t n = 0;
  size_t k = 0;
  // Elements from one stored row to the next.
  size_t lda = 0;
  size_t ldb = 0;
  size_t ldc = 0;
};

struct GemmOptions {
  bool accumulate = false;      // add to the old values of C
  const float* bias = nullptr;  // (optional) [n]
  // (optional) The operand is quantized; lda, ldb and the address are not used. It is dequantized
  // to f32 in blocks that fit into the caches.
  CodesPointer a_codes = {};
  CodesPointer b_codes = {};
  // Only for b_codes: the dtype of A before its conversion to f32. bf16 selects products with the
  // precision of bf16.
  IntegersOf a_of = IntegersOf::f32;
};

// Bytes of scratch memory, aligned to 64, for any product of this shape with this pool.
size_t gemm_scratch_bytes(const GemmShape& shape, const Threads& threads, bool a_codes = false);

void gemm(Threads& threads, const GemmShape& shape, const float* a, const float* b, float* c,
          const GemmOptions& options, void* scratch);

}  // namespace bowline::detail::cpu
