//! ops(f32, f16, bf16) Softmax SoftmaxGrad LogSoftmax LogSoftmaxGrad
//! ops(f32, f16, bf16) LayerNorm LayerNormGrad RmsNorm RmsNormGrad
// One subgroup per row: no shared memory and no barrier, at every subgroup size.
#include <algorithm>

#include "convert.h"
#include "groups.h"

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

// dgamma and dbeta are sums over all rows: first over chunks of rows, then over the chunks. For
// 16-bit dtypes, the sums are f32 in the workspace and rounded once.
uint64_t chunks_of(uint64_t rows) { return std::clamp<uint64_t>(rows / 64, 1, 64); }

uint64_t norm_grad_workspace(const NodeView& node) {
  const uint64_t rows = rows_of(node.in(0));
  const uint64_t chunks = chunks_of(rows);
  const auto n = static_cast<uint64_t>(node.in(0).back());
  const uint64_t sums = node.query.type != DType::f32 ? 2 * n : 0;
  return (2 * rows + (chunks > 1 ? 2 * chunks * n : 0) + sums) * 4;
}

void add_chunks(Launch& l, VkDeviceAddress from, VkDeviceAddress to, uint64_t chunks, uint64_t n) {
  const ElementGroups g =
      groups_of(Shape{static_cast<int64_t>(chunks), static_cast<int64_t>(n)}, Axes{true});
  const Grid grid = l.over_elements(n);
  Push push;
  push.add(from, to).table(l.table(words_of(g))).u32(n, chunks, grid.per_group).f32(1);
  l.dispatch(shader::reduce_columns_f32, {1, 1}, push, grid, {static_cast<double>(chunks * n), 0});
}

template <bool kLayer>
void norm_grad(Launch& l) {
  const Shape& x = l.in_shape(0);
  const uint64_t rows = rows_of(x);
  const auto n = static_cast<uint64_t>(x.back());
  const uint64_t chunks = chunks_of(rows);
  const VkDeviceAddress stats = l.workspace();
  const bool narrow = l.type() != DType::f32;
  const VkDeviceAddress sums = stats + 8 * rows + (chunks > 1 ? 8 * chunks * n : 0);
  const VkDeviceAddress all_gamma = narrow ? sums : l.out(1);
  const VkDeviceAddress all_beta = !kLayer ? 0 : narrow ? sums + 4 * n : l.out(2);
  const VkDeviceAddress dgamma = chunks > 1 ? stats + 8 * rows : all_gamma;
  const VkDeviceAddress dbeta = !kLayer ? 0 : chunks > 1 ? dgamma + 4 * chunks * n : all_beta;
  const Grid columns = l.over_single_elements(chunks * n);
  Push push;
  push.add(l.in(0), l.in(1), l.in(2), l.out(0), stats, dgamma, dbeta)
      .u32(rows, n)
      .f32(eps_of(l, kLayer))
      .u32((rows + chunks - 1) / chunks, chunks, columns.per_group);
  l.dispatch(kLayer ? shader::norm_grad_layer_rows : shader::norm_grad_rms_rows, {}, push,
             l.over_rows(rows), l.each(elements(x), 20, 6));
  l.barrier();
  l.dispatch(kLayer ? shader::norm_grad_layer_columns : shader::norm_grad_rms_columns, {}, push,
             columns, l.each(elements(x), 10, 2));
  if (chunks > 1) {
    l.barrier();
    add_chunks(l, dgamma, all_gamma, chunks, n);
    if (kLayer) {
      add_chunks(l, dbeta, all_beta, chunks, n);
    }
  }
  if (narrow) {
    l.barrier();
    convert(l, all_gamma, DType::f32, l.out(1), l.type(), n);
    if (kLayer) {
      convert(l, all_beta, DType::f32, l.out(2), l.type(), n);
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
                          .workspace = norm_grad_workspace, .refusal = refusal);
BOWLINE_KERNELS_OF_FLOATS(rms_norm, .launch = norm<false>, .refusal = refusal);
BOWLINE_KERNELS_OF_FLOATS(rms_norm_grad, .launch = norm_grad<false>,
                          .workspace = norm_grad_workspace, .refusal = refusal);

}  // namespace bowline::detail::vulkan::rows_kernels
