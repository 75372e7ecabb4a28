// Matrix product in f32, every operand row-major with a leading dimension.
//
//   C[m, n] = sum over k of A[m, k] * B[k, n]   (+ C[m, n])   (+ bias[n])
//
// Shapes    C [m, n], op(A) [m, k], op(B) [k, n], bias [n]; any of them may be 0.
// Numerics  f32 sums with fused multiply-add where the machine has it, k in ascending blocks of a
// fixed size. The bits
//           depend on the instruction set, the shape and the layout, never on the number of
//           threads.
// Threads   uses the pool; one caller at a time. Operands may not overlap C; nothing is allocated.
#pragma once

#include <cstddef>

#include "compute/codes.h"
#include "compute/integer_dots.h"
#include "threads.h"

namespace bowline::detail::cpu {

// First letter for A, second for B: n as it stands in the formula, t stored transposed (A [k, m], B
// [n, k]).
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
  bool accumulate = false;      // add to what C holds
  const float* bias = nullptr;  // (optional) [n], default none
  // (optional) The operand is these codes: lda, ldb and the address are not used. They become f32
  // in blocks, in the caches.
  const Codes* a_codes = nullptr;
  const Codes* b_codes = nullptr;
  IntegersOf a_of =
      IntegersOf::f32;  // with b_codes: bf16 need not be multiplied more exactly than they are
};

// Bytes of scratch for any product of this shape with this pool. The scratch is aligned to 64
// bytes.
size_t gemm_scratch_bytes(const GemmShape& shape, const Threads& threads, bool a_codes = false);

void gemm(Threads& threads, const GemmShape& shape, const float* a, const float* b, float* c,
          const GemmOptions& options, void* scratch);

// `batch` products of one shape; the strides are elements from one matrix to the next (0 repeats an
// operand). Scratch as for one product.
void gemm_batched(Threads& threads, const GemmShape& shape, size_t batch, const float* a,
                  size_t stride_a, const float* b, size_t stride_b, float* c, size_t stride_c,
                  const GemmOptions& options, void* scratch);

}  // namespace bowline::detail::cpu
