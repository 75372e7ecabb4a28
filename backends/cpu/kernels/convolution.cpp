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

BOWLINE_CPU_WIDE_KERNELS(conv, run_conv, workspace<conv>);
BOWLINE_CPU_WIDE_KERNELS(conv_transpose, run_transposed, workspace<transposed>);
BOWLINE_CPU_WIDE_KERNELS(conv_input_grad, run_input_grad, workspace<input_grad>);
BOWLINE_CPU_WIDE_KERNELS(conv_weight_grad, run_weight_grad, workspace<weight_grad>);

}  // namespace bowline::detail::cpu::convolution_kernels
