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
void dispatch(Launch& l, const shader::ByType& shader, const Convolution& c, VkDeviceAddress x,
              VkDeviceAddress w, VkDeviceAddress y, const Grid& grid) {
  const bool has_bias = l.inputs() > 2;
  Push push;
  push.add(x, w, y, has_bias ? l.in(2) : l.out(0)).table(window_table(l, c.windows));
  push.u32(grid.elements, grid.per_group, has_bias, c.batch, c.groups, c.inputs, c.outputs);
  const double products = static_cast<double>(c.batch * c.groups * c.outputs * c.inputs) *
                          static_cast<double>(c.windows.outputs() * c.windows.window());
  l.dispatch(shader, {}, push, grid, {products * 10, 0});
}

void convolve(Launch& l) {
  dispatch(l, shader::convolution_forward, of<conv>(l), l.in(0), l.in(1), l.out(0),
           l.over_single_elements(l.out_shape(0).elements()));
}

template <Find find, size_t kWeight, size_t kGradient>
void convolve_back(Launch& l) {
  dispatch(l, shader::convolution_back, of<find>(l), l.out(0), l.in(kWeight), l.in(kGradient),
           l.over_single_elements(l.out_shape(0).elements()));
}

void conv_weight_grad(Launch& l) {
  dispatch(l, shader::convolution_weights, of<weight_grad>(l), l.in(0), l.out(0), l.in(1),
           l.over_rows(l.out_shape(0).elements()));
}

template <Find find>
Convolution of(const NodeView& node) {
  return find(node.query.attributes, node.in(0), node.in(1), node.out(0));
}
const char* refused(const NodeView& node, int64_t iterations) {
  return refuse_loops(node, iterations,
                      "A sum has more terms than the loops of a software device run.");
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

BOWLINE_KERNELS_OF_FLOATS(conv, .launch = convolve, .refusal = forward_refusal);
BOWLINE_KERNELS_OF_FLOATS(conv_transpose, .launch = convolve_back<transposed, 1, 0>,
                          .refusal = back_refusal<transposed>);
BOWLINE_KERNELS_OF_FLOATS(conv_input_grad, .launch = convolve_back<input_grad, 0, 1>,
                          .refusal = back_refusal<input_grad>);
BOWLINE_KERNELS_OF_FLOATS(conv_weight_grad, .launch = conv_weight_grad, .refusal = weights_refusal);

}  // namespace bowline::detail::vulkan::convolution_kernels
