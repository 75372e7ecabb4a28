// Products of a few rows with the rows of a weight, as decoding computes them.
#pragma once

#include "core/products.h"
#include "kernel.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

constexpr int64_t kFewRows = 8;

// True for y[m, n] = a b^T or y = a b, with a [m, k] of at most kFewRows rows and b [n, k] or
// [k, n].
inline bool has_few_rows(const MatrixProduct& p) {
  return p.m <= kFewRows && p.batch.elements() == 1 && !p.transpose_a;
}

// Scratch memory of such a product.
uint64_t few_rows_workspace(const MatrixProduct& p, bool quantized, const Traits& traits);

// Enqueues such a product of a MatMul, Linear or FusedMatMul, with what follows it. b may be
// quantized. The results are not empty and replace y.
void multiply_few_rows(Launch& l, const MatrixProduct& p);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
