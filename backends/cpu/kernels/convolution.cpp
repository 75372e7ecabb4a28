//! ops(f32, f16, bf16) Conv ConvTranspose ConvInputGrad ConvWeightGrad
// Adapters of compute/convolution.h: map the operands of each operator to x, weight and y of the
// convolution that it computes or reverses.
#include "compute/convolution.h"

#include "core/convolutions.h"
#include "wide.h"

namespace bowline::detail::cpu::convolution_kernels {
namespace {

using namespace convolutions;

template <Find find>
Convolution of(const Launch& l) {
  return find(l.record.attributes, *l.in[0].shape, *l.in[1].shape, *l.out[0].shape);
}

template <Find find>
uint64_t workspace(const device::NodeQuery& node, const Threads& threads) {
  return convolution_scratch_bytes(
      find(node.attributes, node.inputs[0].shape, node.inputs[1].shape, node.outputs[0].shape),
      threads);
}

const float* bias(const Launch& l) { return l.has_input(2) ? l.in[2].f32() : nullptr; }

void run_conv(const Launch& l) {
  convolve(l.threads, of<conv>(l), l.in[0].f32(), l.in[1].f32(), bias(l), l.out[0].f32(),
           l.workspace);
}

void run_transposed(const Launch& l) {
  convolve_back(l.threads, of<transposed>(l), l.in[0].f32(), l.in[1].f32(), bias(l), l.out[0].f32(),
                l.workspace);
}

void run_input_grad(const Launch& l) {
  convolve_back(l.threads, of<input_grad>(l), l.in[1].f32(), l.in[0].f32(), nullptr, l.out[0].f32(),
                l.workspace);
}

void run_weight_grad(const Launch& l) {
  convolve_weights(l.threads, of<weight_grad>(l), l.in[0].f32(), l.in[1].f32(), l.out[0].f32(),
                   l.workspace);
}

}  // namespace

#define BOWLINE_CONVOLUTION(stem, run_it, find)                                   \
  extern const Kernel kernel_##stem, kernel_##stem##_f16, kernel_##stem##_bf16;   \
  const Kernel kernel_##stem{.run = run_it, .workspace = workspace<find>};        \
  const Kernel kernel_##stem##_f16{.run = run_wide<f16, run_it>,                  \
                                   .workspace = wide_workspace<workspace<find>>}; \
  const Kernel kernel_##stem##_bf16 {                                             \
    .run = run_wide<bf16, run_it>, .workspace = wide_workspace<workspace<find>>   \
  }
BOWLINE_CONVOLUTION(conv, run_conv, conv);
BOWLINE_CONVOLUTION(conv_transpose, run_transposed, transposed);
BOWLINE_CONVOLUTION(conv_input_grad, run_input_grad, input_grad);
BOWLINE_CONVOLUTION(conv_weight_grad, run_weight_grad, weight_grad);
#undef BOWLINE_CONVOLUTION

}  // namespace bowline::detail::cpu::convolution_kernels
