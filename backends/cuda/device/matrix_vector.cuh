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

// The number of candidates: parts of k for b [k, n], and for one row of a the rows of b per warp.
constexpr uint32_t kWaysOfColumns = 4;
constexpr uint32_t kWaysOfARow = 2;
inline uint32_t few_rows_candidates(const MatrixProduct& p) {
  return !p.transpose_b ? kWaysOfColumns : p.m == 1 ? kWaysOfARow : 0;
}
// Scratch memory of such a product with a candidate.
uint64_t few_rows_workspace(const MatrixProduct& p, bool quantized, const Traits& traits,
                            uint32_t candidate);

// Enqueues such a product of a MatMul, Linear or FusedMatMul, with what follows it. b may be
// quantized. The results are not empty and replace y.
void multiply_few_rows(Launch& l, const MatrixProduct& p);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
