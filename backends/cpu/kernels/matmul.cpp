//! ops(f32, f16, bf16) MatMul Linear
// Products with gemm: MatMul with broadcast batch axes, and Linear with all rows as one matrix.
#include "compute/gemm.h"
#include "compute/gemm16.h"
#include "core/element_types.h"
#include "core/products.h"
#include "wide.h"

namespace bowline::detail::cpu::matmul_kernels {
namespace {

GemmShape shape_of(const MatrixProduct& p) {
  GemmShape s;
  s.layout = p.transpose_a ? (p.transpose_b ? GemmLayout::tt : GemmLayout::tn)
                           : (p.transpose_b ? GemmLayout::nt : GemmLayout::nn);
  s.m = static_cast<size_t>(p.m);
  s.n = s.ldc = static_cast<size_t>(p.n);
  s.k = static_cast<size_t>(p.k);
  s.lda = p.transpose_a ? s.m : s.k;
  s.ldb = p.transpose_b ? s.k : s.n;
  return s;
}

bool reads_codes(const device::NodeQuery& node) {
  return !node.inputs[0].encoding.is_plain() || !node.inputs[1].encoding.is_plain();
}

// Products with quantized operands compute in f32 for every dtype.
uint64_t workspace(const device::NodeQuery& node, const Threads& threads) {
  const GemmShape s = shape_of(matrix_product_of(node));
  if (reads_codes(node)) {
    return wide_operand_bytes(node) +
           gemm_scratch_bytes(s, threads, !node.inputs[0].encoding.is_plain());
  }
  return node.type == DType::f32 ? gemm_scratch_bytes(s, threads)
                                 : gemm16_scratch_bytes(s, threads);
}

// For an f32 node, or a node whose other operands are already converted to f32.
void multiply_codes(const Launch& l, const MatrixProduct& p, GemmOptions options) {
  options.a_of = l.record.type == DType::bf16 ? IntegersOf::bf16 : IntegersOf::f32;
  for (int64_t i = 0; i < static_cast<int64_t>(p.batch.elements()); ++i) {
    int64_t at[2];
    p.batch.offsets(static_cast<uint64_t>(i), at);
    const float* matrices[2];
    Codes codes[2];
    for (size_t side = 0; side < 2; ++side) {
      matrices[side] = l.is_encoded(side) ? nullptr : l.in[side].f32() + at[side];
      if (l.is_encoded(side)) {
        const int64_t columns = l.in[side].shape->back();
        const int64_t row = columns == 0 ? 0 : at[side] / columns;
        codes[side] = l.codes(side).from_row(static_cast<size_t>(row));
      }
    }
    options.a_codes = l.is_encoded(0) ? &codes[0] : nullptr;
    options.b_codes = l.is_encoded(1) ? &codes[1] : nullptr;
    gemm(l.threads, shape_of(p), matrices[0], matrices[1], l.out[0].f32() + i * p.m * p.n, options,
         l.workspace);
  }
}

template <class T>
void run(const Launch& l) {
  const MatrixProduct p = matrix_product_of(l.record);
  const T* const bias = l.has_input(2) ? l.in[2].as<const T>() : nullptr;
  bool adds = false;
  if (l.is_gradient(0)) {
    if (l.out[0].entry.elements == 0) {
      return;
    }
    adds = !l.out[0].entry.first || l.head.accumulate != 0;
  }
  if (l.is_encoded(0) || l.is_encoded(1)) {
    if constexpr (std::same_as<T, float>) {
      multiply_codes(l, p, {adds, bias});
    } else {
      kRunWide<T, run<float>>(l);
    }
    return;
  }
  for (int64_t i = 0; i < static_cast<int64_t>(p.batch.elements()); ++i) {
    int64_t at[2];
    p.batch.offsets(static_cast<uint64_t>(i), at);
    const T* const a = l.in[0].as<const T>() + at[0];
    const T* const b = l.in[1].as<const T>() + at[1];
    T* const c = l.out[0].as<T>() + i * p.m * p.n;
    if constexpr (std::same_as<T, float>) {
      gemm(l.threads, shape_of(p), a, b, c, {adds, bias}, l.workspace);
    } else {
      gemm(l.threads, shape_of(p), a, b, c, bias, l.workspace);
    }
  }
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(mat_mul, .run = run<T>, .workspace = workspace,
                          .accumulates = std::same_as<T, float>, .encoded = 0b11);
BOWLINE_KERNELS_OF_FLOATS(linear, .run = run<T>, .workspace = workspace, .encoded = 0b10);

}  // namespace bowline::detail::cpu::matmul_kernels
