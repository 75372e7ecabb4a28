// Matrix product of f16 or bf16 operands, as gemm.h lays them out:
//
//   C[m, n] = sum over k of A[m, k] * B[k, n]   (+ bias[n])
//
// Numerics  f32 sums, k in ascending blocks of a fixed size; rounded once, to nearest even.
//           Operands become f32 only block by block, in the caches. Where the machine has it
//           (AVX512_BF16), products of bf16 are the instruction's: each sum takes the elements of k
//           in pairs, the second of a pair before the first, each with one rounding, and denormals
//           count as 0, among operands as among sums and results: an error of at most k * 2^-126
//           times the largest operand. As infinity times 0 is NaN but times a denormal infinity, a
//           product with a NaN in it is computed again without the instruction. The bits depend on
//           the instruction set, the shape, the layout and that, never on the number of threads.
// Threads   uses the pool; one caller at a time. Operands may not overlap C; nothing is allocated.
#pragma once

#include "compute/gemm.h"
#include "core/float16.h"

namespace bowline::detail::cpu {

// Bytes of scratch, aligned to 64, for any product of this shape with this pool.
size_t gemm16_scratch_bytes(const GemmShape& shape, const Threads& threads);

// `bias` [n] may be null.
void gemm(Threads& threads, const GemmShape& shape, const f16* a, const f16* b, f16* c,
          const f16* bias, void* scratch);
void gemm(Threads& threads, const GemmShape& shape, const bf16* a, const bf16* b, bf16* c,
          const bf16* bias, void* scratch);

// Whether products of bf16 use the instruction.
bool bf16_products();
// For tests: false does without it.
void allow_bf16_products(bool allow);

}  // namespace bowline::detail::cpu
