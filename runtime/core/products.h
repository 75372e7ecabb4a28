// The sizes of the matrix product of a MatMul, Linear or FusedMatMul, and the places of the inputs
// of fused products.
#pragma once

#include "core/attributes.h"
#include "core/loops.h"

namespace bowline {

// C[m, n] = A B for each matrix of a batch. A is [m, k], or the transpose of a [k, m]; B is [k, n],
// or the transpose of an [n, k].
struct MatrixProduct {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  Loops<2> batch = {};  // the elements between the matrices of A and B

  bool is_empty() const { return m == 0 || n == 0 || batch.elements() == 0; }

  // If all matrices of A have one B, they become the rows of a single matrix.
  void join_rows() {
    if (!transpose_a && batch.rank == 1 && batch.strides[0][0] == m * k &&
        batch.strides[1][0] == 0) {
      m *= batch.sizes[0];
      batch = {};
    }
  }
};

// The inputs of a FusedMatMul after the operands of the product; -1: it has no such input.
struct FusedInputs {
  explicit FusedInputs(const FusedMatMulAttributes& t) {
    int next = 2;
    addend = t.addend() ? next++ : -1;
    slope = t.gelu_grad() ? next++ : -1;
    bias = t.bias() ? next++ : -1;
    count = next;
  }
  int addend, slope, bias;
  int count;  // of all inputs
};

// The inputs of a FusedNormMatMul; -1: it has no such input. Weight i is input 1 + i.
struct NormProductInputs {
  explicit NormProductInputs(const FusedNormMatMulAttributes& t)
      : weights(static_cast<int>(t.weights())),
        gamma(1 + weights),
        beta(t.rms() ? -1 : gamma + 1),
        bias(t.bias() ? gamma + (t.rms() ? 1 : 2) : -1),
        count(gamma + (t.rms() ? 1 : 2) + (t.bias() ? weights : 0)) {}
  int weights;
  int gamma, beta;
  int bias;   // of the first weight; those of the others follow
  int count;  // of all inputs
};
constexpr int kMostNormProducts = 3;

// Of a device::Record or device::NodeQuery.
template <class Node>
MatrixProduct matrix_product_of(const Node& node) {
  const Shape& a = node.inputs[0].shape;
  const Shape& b = node.inputs[1].shape;
  if (node.op == Op::Linear) {
    return {.m = a.rows(), .n = b[0], .k = b[1], .transpose_b = true};
  }
  if (node.op == Op::FusedMatMul) {
    const auto& t = node.attributes.template as<FusedMatMulAttributes>();
    const bool ta = t.transpose_a(), tb = t.transpose_b();
    return {.m = ta ? a[1] : a.rows(),
            .n = b[tb ? 0 : 1],
            .k = b[tb ? 1 : 0],
            .transpose_a = ta,
            .transpose_b = tb};
  }
  const auto& t = node.attributes.template as<MatMulAttributes>();
  const Shape& c = node.outputs[0].shape;
  MatrixProduct p = {.m = c[c.rank() - 2],
                     .n = c[c.rank() - 1],
                     .k = a[a.rank() - (t.transpose_a() ? 2 : 1)],
                     .transpose_a = t.transpose_a(),
                     .transpose_b = t.transpose_b()};
  const Strides of_a = broadcast_strides(a, c), of_b = broadcast_strides(b, c);
  for (int axis = 0; axis < c.rank() - 2; ++axis) {
    const auto i = static_cast<size_t>(axis);
    p.batch.add(c[axis], {of_a[i], of_b[i]});
  }
  return p;
}

}  // namespace bowline
