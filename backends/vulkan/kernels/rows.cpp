//! ops(f32, f16, bf16) Softmax SoftmaxGrad LogSoftmax LogSoftmaxGrad
//! ops(f32, f16, bf16) LayerNorm LayerNormGrad RmsNorm RmsNormGrad
// One subgroup per row: no shared memory and no barrier, at every subgroup size.
#include <algorithm>

#include "column_sums.h"

namespace bowline::detail::vulkan::rows_kernels {
namespace {

uint64_t elements(const Shape& shape) { return static_cast<uint64_t>(shape.elements()); }

// Number of rows of the last axis; 0 for an empty tensor.
uint64_t rows_of(const Shape& shape) {
  return shape.elements() == 0 ? 0 : static_cast<uint64_t>(shape.rows());
}

// Three loops over the row; each lane processes every S-th element.
const char* refusal(const NodeView& node) {
  const int64_t limit = kMaxIterations / 3 * node.physical.subgroup_size;
  const bool too_long = node.in(0).rank() > 0 && node.in(0).back() > limit;
  return node.physical.is_software() && too_long
             ? "A row is longer than the loops of a software device run."
             : nullptr;
}

// A softmax or its gradient, whose second input is dy.
template <const shader::ByType& kShader>
void softmax(Launch& l) {
  const Shape& x = l.in_shape(0);
  const bool backward = l.inputs() > 1;
  Push push;
  push.add(l.in(0), backward ? l.in(1) : 0, l.out(0)).u32(rows_of(x), x.back());
  const auto n = static_cast<double>(elements(x));
  l.dispatch(kShader, {}, push, l.over_rows(rows_of(x)), {n * (backward ? 6 : 40), n * 20});
}

float eps_of(const Launch& l, bool kLayer) {
  return kLayer ? l.attributes<LayerNormAttributes>().eps()
                : l.attributes<RmsNormAttributes>().eps();
}

template <bool kLayer>
void norm(Launch& l) {
  const Shape& x = l.in_shape(0);
  Push push;
  push.add(l.in(0), l.in(1), kLayer ? l.in(2) : 0, l.out(0)).u32(rows_of(x), x.back());
  push.f32(eps_of(l, kLayer));
  l.dispatch(kLayer ? shader::norm_layer : shader::norm_rms, {}, push, l.over_rows(rows_of(x)),
             l.each(elements(x), 10, 4));
}

// dgamma and dbeta are sums over all rows: first over parts of the rows, in f32 in the workspace,
// then over the parts. One part of f32 goes to the outputs at once.
struct NormSums {
  explicit NormSums(const Shape& x, DType type)
      : rows(rows_of(x)),
        n(static_cast<uint64_t>(x.back())),
        parts(column_parts(rows, n)),
        at_once(parts.count == 1 && type == DType::f32) {}
  // Of the statistics of all rows, then of the parts.
  uint64_t workspace() const { return (2 * rows + (at_once ? 0 : 2 * parts.count * n)) * 4; }

  uint64_t rows, n;
  ColumnParts parts;
  bool at_once;
};

uint64_t norm_grad_workspace(const NodeView& node) {
  return NormSums(node.in(0), node.query.type).workspace();
}

template <bool kLayer>
uint32_t norm_grad_accumulates(const NodeView& node) {
  const NormSums sums(node.in(0), node.query.type);
  return sums.at_once ? 0 : kLayer ? 0b110 : 0b10;
}

template <bool kLayer>
void norm_grad(Launch& l) {
  const Shape& x = l.in_shape(0);
  const NormSums sums(x, l.type());
  const uint64_t n = sums.n, count = sums.parts.count;
  const VkDeviceAddress stats = l.workspace();
  const VkDeviceAddress parts = stats + 8 * sums.rows;
  const VkDeviceAddress dgamma = sums.at_once ? l.out(1) : parts;
  const VkDeviceAddress dbeta = !kLayer ? 0 : sums.at_once ? l.out(2) : parts + 4 * count * n;
  const Grid columns = l.over_single_elements(count * n);
  Push push;
  push.add(l.in(0), l.in(1), l.in(2), l.out(0), stats, dgamma, dbeta)
      .u32(sums.rows, n)
      .f32(eps_of(l, kLayer))
      .u32(sums.parts.terms, count, columns.per_group);
  l.dispatch(kLayer ? shader::norm_grad_layer_rows : shader::norm_grad_rms_rows, {}, push,
             l.over_rows(sums.rows), l.each(elements(x), 20, 6));
  l.barrier();
  l.dispatch(kLayer ? shader::norm_grad_layer_columns : shader::norm_grad_rms_columns, {}, push,
             columns, l.each(elements(x), 10, 2));
  if (!sums.at_once) {
    l.barrier();
    add_column_parts(l, dgamma, 1, count, n);
    if (kLayer) {
      add_column_parts(l, dbeta, 2, count, n);
    }
  }
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(softmax, .launch = softmax<shader::softmax_forward>, .refusal = refusal);
BOWLINE_KERNELS_OF_FLOATS(softmax_grad, .launch = softmax<shader::softmax_backward>,
                          .refusal = refusal);
BOWLINE_KERNELS_OF_FLOATS(log_softmax, .launch = softmax<shader::softmax_log_forward>,
                          .refusal = refusal);
BOWLINE_KERNELS_OF_FLOATS(log_softmax_grad, .launch = softmax<shader::softmax_log_backward>,
                          .refusal = refusal);
BOWLINE_KERNELS_OF_FLOATS(layer_norm, .launch = norm<true>, .refusal = refusal);
BOWLINE_KERNELS_OF_FLOATS(layer_norm_grad, .launch = norm_grad<true>,
                          .workspace = norm_grad_workspace, .refusal = refusal,
                          .accumulates = norm_grad_accumulates<true>);
BOWLINE_KERNELS_OF_FLOATS(rms_norm, .launch = norm<false>, .refusal = refusal);
BOWLINE_KERNELS_OF_FLOATS(rms_norm_grad, .launch = norm_grad<false>,
                          .workspace = norm_grad_workspace, .refusal = refusal,
                          .accumulates = norm_grad_accumulates<false>);

}  // namespace bowline::detail::vulkan::rows_kernels
