// Products of 16-bit matrices on tensor cores.
#pragma once

#include "core/products.h"
#include "kernel.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// Scratch memory of multiply_on_tensor_cores with a candidate.
uint64_t tensor_product_workspace(const MatrixProduct& p, const Traits& traits, uint32_t candidate);
// The number of candidates: tiles, each with several numbers of parts of k.
uint32_t tensor_product_candidates(const MatrixProduct& p, const Traits& traits);

// Enqueues the product of a MatMul, Linear or FusedMatMul, with what follows it. a or b may be
// quantized. The results are not empty. Traits::multiplies holds for the dtype of the node.
void multiply_on_tensor_cores(Launch& l, const MatrixProduct& p);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
