// Matrix product of f16 or bf16 operands, with the layouts of gemm.h:
//
//   C[m, n] = sum over k of A[m, k] * B[k, n]   (+ bias[n])
//
// Numerics  f32 sums over ascending blocks of k with a fixed size, rounded once to nearest even.
//           Operands are converted to f32 only block by block, in the caches. With AVX512_BF16, the
//           CPU instruction multiplies bf16: each sum takes the elements of k in pairs, the second
//           of a pair before the first, with one rounding each. With FEAT_BF16 of aarch64, the
//           products of a pair are added, and then the pair is added to the sum. Both additions
//           round to odd: an inexact result is the odd one of its two neighbours, so its error is
//           below one unit in the last place. If FPCR.EBF is set, a pair has one rounding, to
//           nearest. Both instructions flush denormals to 0 in operands, sums and results, an
//           error of at most k * 2^-126 times the largest operand.
//           Infinity times 0 is NaN, but infinity times a denormal is infinity; so a product whose
//           result contains NaN is recomputed without the instruction. The bits depend on the
//           instruction set, the shape, the layout and this choice, never on the number of threads.
// Threads   uses the pool; one caller at a time. Operands must not overlap C; nothing is allocated.
#pragma once

#include "base/float16.h"
#include "compute/gemm.h"

namespace bowline::detail::cpu {

// Bytes of scratch memory, aligned to 64, for any product of this shape with this pool.
size_t gemm16_scratch_bytes(const GemmShape& shape, const Threads& threads);

// `bias` [n] may be null.
void gemm(Threads& threads, const GemmShape& shape, const f16* a, const f16* b, f16* c,
          const f16* bias, void* scratch);
void gemm(Threads& threads, const GemmShape& shape, const bf16* a, const bf16* b, bf16* c,
          const bf16* bias, void* scratch);

// True if products of bf16 use the CPU instruction.
bool bf16_products();
// For tests: false disables the instruction.
void allow_bf16_products(bool allow);

}  // namespace bowline::detail::cpu
