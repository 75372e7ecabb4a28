//! ops(f32, f16, bf16) MatMul Linear
// Products with gemm: MatMul with broadcast batch axes, and Linear with all rows as one matrix.
#include "compute/gemm.h"
#include "compute/gemm16.h"
#include "core/element_types.h"
#include "wide.h"

namespace bowline::detail::cpu::matmul_kernels {
namespace {

GemmLayout layout_of(bool transpose_a, bool transpose_b) {
  return transpose_a ? (transpose_b ? GemmLayout::tt : GemmLayout::tn)
                     : (transpose_b ? GemmLayout::nt : GemmLayout::nn);
}

GemmShape matmul_shape(const MatMulAttributes& t, const Shape& a, const Shape& b) {
  GemmShape s;
  s.layout = layout_of(t.transpose_a(), t.transpose_b());
  const auto dim = [](const Shape& x, int from_back) {
    return static_cast<size_t>(x[x.rank() - from_back]);
  };
  s.lda = dim(a, 1);
  s.ldb = dim(b, 1);
  s.m = t.transpose_a() ? dim(a, 1) : dim(a, 2);
  s.k = t.transpose_a() ? dim(a, 2) : dim(a, 1);
  s.n = t.transpose_b() ? dim(b, 2) : dim(b, 1);
  s.ldc = s.n;
  return s;
}

bool reads_codes(const device::NodeQuery& node) {
  return !node.inputs[0].encoding.is_plain() || !node.inputs[1].encoding.is_plain();
}

// Products with quantized operands compute in f32 for every dtype.
uint64_t workspace_of(const device::NodeQuery& node, const GemmShape& s, const Threads& threads) {
  if (reads_codes(node)) {
    const uint64_t wide = node.type == DType::f32 ? 0 : wide_operand_bytes(node);
    return wide + gemm_scratch_bytes(s, threads, !node.inputs[0].encoding.is_plain());
  }
  return node.type == DType::f32 ? gemm_scratch_bytes(s, threads)
                                 : gemm16_scratch_bytes(s, threads);
}

uint64_t matmul_workspace(const device::NodeQuery& node, const Threads& threads) {
  return workspace_of(node,
                      matmul_shape(node.attributes.as<MatMulAttributes>(), node.inputs[0].shape,
                                   node.inputs[1].shape),
                      threads);
}

// Offset, in elements, of the matrix of `in` that belongs to matrix `index` of the output.
int64_t batch_offset(const Shape& in, const Shape& out, int64_t index) {
  int64_t offset = 0;
  int64_t step = in.elements(in.rank() - 2, in.rank());
  for (int a = out.rank() - 3; a >= 0; --a) {
    const int from = a - (out.rank() - in.rank());
    const int64_t at = index % out[a];
    index /= out[a];
    if (from >= 0) {
      offset += (in[from] == 1 ? 0 : at) * step;
      step *= in[from];
    }
  }
  return offset;
}

// For an f32 node, or a node whose other operands are already converted to f32.
void multiply_codes(const Launch& l, const GemmShape& s, int64_t batch, GemmOptions options) {
  const Shape& out = *l.out[0].shape;
  options.a_of = l.record.type == DType::bf16 ? IntegersOf::bf16 : IntegersOf::f32;
  for (int64_t i = 0; i < batch; ++i) {
    const float* matrices[2];
    Codes codes[2];
    for (size_t side = 0; side < 2; ++side) {
      const Shape& shape = *l.in[side].shape;
      const int64_t offset = batch_offset(shape, out, i);
      matrices[side] = l.is_encoded(side) ? nullptr : l.in[side].f32() + offset;
      if (l.is_encoded(side)) {
        const int64_t row = shape.back() == 0 ? 0 : offset / shape.back();
        codes[side] = l.codes(side).from_row(static_cast<size_t>(row));
      }
    }
    options.a_codes = l.is_encoded(0) ? &codes[0] : nullptr;
    options.b_codes = l.is_encoded(1) ? &codes[1] : nullptr;
    gemm(l.threads, s, matrices[0], matrices[1],
         l.out[0].f32() + i * static_cast<int64_t>(s.m * s.n), options, l.workspace);
  }
}

template <class T>
void run_matmul(const Launch& l) {
  GemmOptions options;
  if (l.is_gradient(0)) {
    if (l.out[0].entry.elements == 0) {
      return;
    }
    options.accumulate = !l.out[0].entry.first || l.head.accumulate != 0;
  }
  const Shape& shape_a = *l.in[0].shape;
  const Shape& shape_b = *l.in[1].shape;
  const Shape& out = *l.out[0].shape;
  const GemmShape s = matmul_shape(l.attributes<MatMulAttributes>(), shape_a, shape_b);
  const int64_t batch = out.elements(0, out.rank() - 2);
  if (l.is_encoded(0) || l.is_encoded(1)) {
    if constexpr (std::same_as<T, float>) {
      multiply_codes(l, s, batch, options);
    } else {
      kRunWide<T, run_matmul<float>>(l);
    }
    return;
  }
  for (int64_t i = 0; i < batch; ++i) {
    const T* const a = l.in[0].as<const T>() + batch_offset(shape_a, out, i);
    const T* const b = l.in[1].as<const T>() + batch_offset(shape_b, out, i);
    T* const c = l.out[0].as<T>() + i * static_cast<int64_t>(s.m * s.n);
    if constexpr (std::same_as<T, float>) {
      gemm(l.threads, s, a, b, c, options, l.workspace);
    } else {
      gemm(l.threads, s, a, b, c, nullptr, l.workspace);
    }
  }
}

GemmShape linear_shape(const Shape& x, const Shape& w) {
  GemmShape s;
  s.layout = GemmLayout::nt;
  s.k = static_cast<size_t>(w[1]);
  s.n = static_cast<size_t>(w[0]);
  s.m = static_cast<size_t>(x.rows());
  s.lda = s.k;
  s.ldb = s.k;
  s.ldc = s.n;
  return s;
}

uint64_t linear_workspace(const device::NodeQuery& node, const Threads& threads) {
  return workspace_of(node, linear_shape(node.inputs[0].shape, node.inputs[1].shape), threads);
}

template <class T>
void run_linear(const Launch& l) {
  const GemmShape s = linear_shape(*l.in[0].shape, *l.in[1].shape);
  if (l.is_encoded(1)) {
    if constexpr (std::same_as<T, float>) {
      multiply_codes(l, s, 1, {false, l.has_input(2) ? l.in[2].f32() : nullptr});
    } else {
      kRunWide<T, run_linear<float>>(l);
    }
    return;
  }
  const T* const x = l.in[0].as<const T>();
  const T* const w = l.in[1].as<const T>();
  const T* const bias = l.has_input(2) ? l.in[2].as<const T>() : nullptr;
  if constexpr (std::same_as<T, float>) {
    gemm(l.threads, s, x, w, l.out[0].f32(), {false, bias}, l.workspace);
  } else {
    gemm(l.threads, s, x, w, l.out[0].as<T>(), bias, l.workspace);
  }
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(mat_mul, .run = run_matmul<T>, .workspace = matmul_workspace,
                          .accumulates = std::same_as<T, float>, .encoded = 0b11);
BOWLINE_KERNELS_OF_FLOATS(linear, .run = run_linear<T>, .workspace = linear_workspace,
                          .encoded = 0b10);

}  // namespace bowline::detail::cpu::matmul_kernels
