//! ops(f32, f16, bf16) Conv ConvTranspose ConvInputGrad ConvWeightGrad
// Convolutions and their gradients, one element per invocation or subgroup.
#include "core/convolutions.h"
#include "windows.h"

namespace bowline::detail::vulkan::convolution_kernels {
namespace {

using namespace convolutions;

template <Find find>
Convolution of(const Launch& l) {
  return find(l.attributes(), l.in_shape(0), l.in_shape(1), l.out_shape(0));
}

// A missing bias is never read, but its address is valid.
Push push_of(Launch& l, const Convolution& c, VkDeviceAddress x, VkDeviceAddress w,
             VkDeviceAddress y, uint64_t n, uint32_t per_group) {
  const bool has_bias = l.inputs() > 2;
  Push push;
  push.add(x).add(w).add(y).add(has_bias ? l.in(2) : l.out(0)).table(window_table(l, c.windows));
  push.u32(n).u32(per_group).u32(has_bias ? 1 : 0);
  push.u32(static_cast<uint64_t>(c.batch)).u32(static_cast<uint64_t>(c.groups));
  push.u32(static_cast<uint64_t>(c.inputs)).u32(static_cast<uint64_t>(c.outputs));
  return push;
}

double products(const Convolution& c) {
  return static_cast<double>(c.batch * c.groups * c.outputs * c.inputs) *
         static_cast<double>(c.windows.outputs() * c.windows.window());
}

void convolve(Launch& l) {
  const Convolution c = of<conv>(l);
  const auto n = static_cast<uint64_t>(l.out_shape(0).elements());
  const Grid grid = l.over_single_elements(n);
  l.dispatch(of_type(l.type(), shader::convolution_forward_f32, shader::convolution_forward_f16,
                     shader::convolution_forward_bf16),
             {}, push_of(l, c, l.in(0), l.in(1), l.out(0), n, grid.per_group), grid,
             products(c) * 10, 0);
}

void convolve_back(Launch& l, const Convolution& c, size_t weight, size_t dy) {
  const auto n = static_cast<uint64_t>(l.out_shape(0).elements());
  const Grid grid = l.over_single_elements(n);
  l.dispatch(of_type(l.type(), shader::convolution_back_f32, shader::convolution_back_f16,
                     shader::convolution_back_bf16),
             {}, push_of(l, c, l.out(0), l.in(weight), l.in(dy), n, grid.per_group), grid,
             products(c) * 10, 0);
}

void conv_transpose(Launch& l) { convolve_back(l, of<transposed>(l), 1, 0); }
void conv_input_grad(Launch& l) { convolve_back(l, of<input_grad>(l), 0, 1); }

void conv_weight_grad(Launch& l) {
  const Convolution c = of<weight_grad>(l);
  const auto n = static_cast<uint64_t>(l.out_shape(0).elements());
  const Grid grid = l.over_rows(n);
  l.dispatch(of_type(l.type(), shader::convolution_weights_f32, shader::convolution_weights_f16,
                     shader::convolution_weights_bf16),
             {}, push_of(l, c, l.in(0), l.out(0), l.in(1), n, grid.per_group), grid,
             products(c) * 10, 0);
}

constexpr const char* kTooLong = "A sum has more terms than the loops of a software device run.";

template <Find find>
Convolution of(const NodeView& node) {
  return find(node.query.attributes, node.in(0), node.in(1), node.out(0));
}
const char* refused(const NodeView& node, int64_t iterations) {
  return node.physical.is_software() && iterations > kMaxIterations ? kTooLong : nullptr;
}

const char* forward_refusal(const NodeView& node) {
  const Convolution c = of<conv>(node);
  return refused(node, c.inputs * (1 + window_iterations(c.windows)));
}
template <Find find>
const char* back_refusal(const NodeView& node) {
  const Convolution c = of<find>(node);
  return refused(node, c.windows.window() * c.outputs + window_iterations(c.windows));
}
const char* weights_refusal(const NodeView& node) {
  const Convolution c = of<weight_grad>(node);
  const auto& [z, y, x] = c.windows.axis;
  const int64_t lanes = node.physical.subgroup_size;
  const int64_t rows = z.out * (1 + y.out * (1 + (x.out + lanes - 1) / lanes));
  return refused(node, c.batch * (1 + rows));
}

}  // namespace

#define BOWLINE_CONVOLUTION(stem, launch_it, refuse_it)                         \
  BOWLINE_VULKAN_KERNEL(stem, .launch = launch_it, .refusal = refuse_it);       \
  BOWLINE_VULKAN_KERNEL(stem##_f16, .launch = launch_it, .refusal = refuse_it); \
  BOWLINE_VULKAN_KERNEL(stem##_bf16, .launch = launch_it, .refusal = refuse_it)
BOWLINE_CONVOLUTION(conv, convolve, forward_refusal);
BOWLINE_CONVOLUTION(conv_transpose, conv_transpose, back_refusal<transposed>);
BOWLINE_CONVOLUTION(conv_input_grad, conv_input_grad, back_refusal<input_grad>);
BOWLINE_CONVOLUTION(conv_weight_grad, conv_weight_grad, weights_refusal);
#undef BOWLINE_CONVOLUTION

}  // namespace bowline::detail::vulkan::convolution_kernels
