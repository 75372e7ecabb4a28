// Products on tensor cores: of 16-bit matrices, and of f32 matrices in TF32.
#pragma once

#include "core/products.h"
#include "kernel.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// Whether a product of f32 matrices may run on tensor cores (Traits::tf32): its matrices are plain,
// at most one is transposed, and their lines consist of whole packs of 16 bytes.
bool may_use_tf32(const Traits& traits, std::span<const device::Operand> inputs,
                  const MatrixProduct& p);

// Scratch memory of multiply_on_tensor_cores with a candidate, for nodes of dtype `type`.
uint64_t tensor_product_workspace(const MatrixProduct& p, DType type,
                                  std::span<const device::Operand> inputs, const Traits& traits,
                                  uint32_t candidate);
// The number of candidates: tiles, each with several numbers of parts of k.
uint32_t tensor_product_candidates(const MatrixProduct& p, DType type,
                                   std::span<const device::Operand> inputs, const Traits& traits);

// Enqueues the product of a MatMul, Linear or FusedMatMul, with what follows it. a or b may be
// quantized. The results are not empty. Traits::multiplies holds for the dtype of the node, or
// may_use_tf32 for its operands. Returns false, without doing anything, if f32 operands do not
// begin at multiples of 16 bytes.
bool multiply_on_tensor_cores(Launch& l, const MatrixProduct& p);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
