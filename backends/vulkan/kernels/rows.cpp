//! ops(f32, f16, bf16) Softmax SoftmaxGrad LogSoftmax LogSoftmaxGrad
//! ops(f32, f16, bf16) LayerNorm LayerNormGrad RmsNorm RmsNormGrad
// One subgroup per row: no shared memory and no barrier, at every subgroup size.
#include <algorithm>

#include "convert.h"
#include "index.h"
#include "kernel.h"

namespace bowline::detail::vulkan::rows_kernels {
namespace {

uint64_t elements(const Shape& shape) { return static_cast<uint64_t>(shape.elements()); }

// Rows of the last axis; an empty tensor has none to work on.
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

void forward(Launch& l, uint32_t shader) {
  const Shape& x = l.in_shape(0);
  Push push;
  push.add(l.in(0))
      .add(uint64_t{0})
      .add(l.out(0))
      .u32(rows_of(x))
      .u32(static_cast<uint64_t>(x.back()));
  const auto n = static_cast<double>(elements(x));
  l.dispatch(shader, {}, push, l.over_rows(rows_of(x)), n * 40, n * 20);
}

void backward(Launch& l, uint32_t shader) {
  const Shape& y = l.in_shape(0);
  Push push;
  push.add(l.in(0)).add(l.in(1)).add(l.out(0)).u32(rows_of(y)).u32(static_cast<uint64_t>(y.back()));
  const auto n = static_cast<double>(elements(y));
  l.dispatch(shader, {}, push, l.over_rows(rows_of(y)), n * 6, n * 20);
}

void softmax(Launch& l) {
  forward(l, of_type(l.type(), shader::softmax_forward_f32, shader::softmax_forward_f16,
                     shader::softmax_forward_bf16));
}

void softmax_grad(Launch& l) {
  backward(l, of_type(l.type(), shader::softmax_backward_f32, shader::softmax_backward_f16,
                      shader::softmax_backward_bf16));
}

void log_softmax(Launch& l) {
  forward(l, of_type(l.type(), shader::softmax_log_forward_f32, shader::softmax_log_forward_f16,
                     shader::softmax_log_forward_bf16));
}

void log_softmax_grad(Launch& l) {
  backward(l, of_type(l.type(), shader::softmax_log_backward_f32, shader::softmax_log_backward_f16,
                      shader::softmax_log_backward_bf16));
}

void norm(Launch& l, bool layer) {
  const Shape& x = l.in_shape(0);
  const float eps =
      layer ? l.attributes<LayerNormAttributes>().eps() : l.attributes<RmsNormAttributes>().eps();
  Push push;
  push.add(l.in(0)).add(l.in(1)).add(layer ? l.in(2) : 0).add(l.out(0));
  push.u32(rows_of(x)).u32(static_cast<uint64_t>(x.back())).f32(eps);
  const auto n = static_cast<double>(elements(x));
  const uint32_t shader =
      layer ? of_type(l.type(), shader::norm_layer_f32, shader::norm_layer_f16,
                      shader::norm_layer_bf16)
            : of_type(l.type(), shader::norm_rms_f32, shader::norm_rms_f16, shader::norm_rms_bf16);
  l.dispatch(shader, {}, push, l.over_rows(rows_of(x)), n * 10, n * 4 * l.element_bytes());
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
  Loops kept(1);
  Loops summed(1);
  kept.add(static_cast<int64_t>(n), {1});
  summed.add(static_cast<int64_t>(chunks), {static_cast<int64_t>(n)});
  kept.finish();
  summed.finish();
  std::vector<uint32_t> words;
  kept.append_to(&words);
  summed.append_to(&words);
  const Grid grid = l.over_elements(n);
  Push push;
  push.add(from).add(to).table(l.table(words)).u32(n).u32(chunks).u32(grid.per_group).f32(1);
  l.dispatch(shader::reduce_columns_f32, {1, 1}, push, grid, static_cast<double>(chunks * n), 0);
}

void norm_grad(Launch& l, bool layer) {
  const Shape& x = l.in_shape(0);
  const float eps =
      layer ? l.attributes<LayerNormAttributes>().eps() : l.attributes<RmsNormAttributes>().eps();
  const uint64_t rows = rows_of(x);
  const auto n = static_cast<uint64_t>(x.back());
  const uint64_t chunks = chunks_of(rows);
  const VkDeviceAddress stats = l.workspace();
  const bool narrow = l.type() != DType::f32;
  const VkDeviceAddress sums = stats + 8 * rows + (chunks > 1 ? 8 * chunks * n : 0);
  const VkDeviceAddress all_gamma = narrow ? sums : l.out(1);
  const VkDeviceAddress all_beta = !layer ? 0 : narrow ? sums + 4 * n : l.out(2);
  const VkDeviceAddress dgamma = chunks > 1 ? stats + 8 * rows : all_gamma;
  const VkDeviceAddress dbeta = !layer ? 0 : chunks > 1 ? dgamma + 4 * chunks * n : all_beta;
  const Grid columns = l.over_single_elements(chunks * n);
  Push push;
  push.add(l.in(0)).add(l.in(1)).add(l.in(2)).add(l.out(0)).add(stats).add(dgamma).add(dbeta);
  push.u32(rows)
      .u32(n)
      .f32(eps)
      .u32((rows + chunks - 1) / chunks)
      .u32(chunks)
      .u32(columns.per_group);
  const auto size = static_cast<double>(elements(x));
  const uint32_t row_shader =
      layer ? of_type(l.type(), shader::norm_grad_layer_rows_f32, shader::norm_grad_layer_rows_f16,
                      shader::norm_grad_layer_rows_bf16)
            : of_type(l.type(), shader::norm_grad_rms_rows_f32, shader::norm_grad_rms_rows_f16,
                      shader::norm_grad_rms_rows_bf16);
  const uint32_t column_shader =
      layer ? of_type(l.type(), shader::norm_grad_layer_columns_f32,
                      shader::norm_grad_layer_columns_f16, shader::norm_grad_layer_columns_bf16)
            : of_type(l.type(), shader::norm_grad_rms_columns_f32,
                      shader::norm_grad_rms_columns_f16, shader::norm_grad_rms_columns_bf16);
  l.dispatch(row_shader, {}, push, l.over_rows(rows), size * 20, size * 6 * l.element_bytes());
  l.barrier();
  l.dispatch(column_shader, {}, push, columns, size * 10, size * 2 * l.element_bytes());
  if (chunks > 1) {
    l.barrier();
    add_chunks(l, dgamma, all_gamma, chunks, n);
    if (layer) {
      add_chunks(l, dbeta, all_beta, chunks, n);
    }
  }
  if (narrow) {
    l.barrier();
    convert(l, all_gamma, DType::f32, l.out(1), l.type(), n);
    if (layer) {
      convert(l, all_beta, DType::f32, l.out(2), l.type(), n);
    }
  }
}

void layer_norm(Launch& l) { norm(l, true); }
void rms_norm(Launch& l) { norm(l, false); }
void layer_norm_grad(Launch& l) { norm_grad(l, true); }
void rms_norm_grad(Launch& l) { norm_grad(l, false); }

}  // namespace

BOWLINE_VULKAN_KERNEL(softmax, .launch = softmax, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(softmax_f16, .launch = softmax, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(softmax_bf16, .launch = softmax, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(softmax_grad, .launch = softmax_grad, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(softmax_grad_f16, .launch = softmax_grad, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(softmax_grad_bf16, .launch = softmax_grad, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(log_softmax, .launch = log_softmax, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(log_softmax_f16, .launch = log_softmax, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(log_softmax_bf16, .launch = log_softmax, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(log_softmax_grad, .launch = log_softmax_grad, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(log_softmax_grad_f16, .launch = log_softmax_grad, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(log_softmax_grad_bf16, .launch = log_softmax_grad, .refusal = refusal);
BOWLINE_VULKAN_KERNELS(layer_norm, .launch = layer_norm, .refusal = refusal);
BOWLINE_VULKAN_KERNELS(layer_norm_grad, .launch = layer_norm_grad, .workspace = norm_grad_workspace,
                       .refusal = refusal);
BOWLINE_VULKAN_KERNELS(rms_norm, .launch = rms_norm, .refusal = refusal);
BOWLINE_VULKAN_KERNELS(rms_norm_grad, .launch = rms_norm_grad, .workspace = norm_grad_workspace,
                       .refusal = refusal);

}  // namespace bowline::detail::vulkan::rows_kernels
