//! ops FusedConv PackConvWeight
// Adapters of compute/fused_conv.h.
#include "compute/fused_conv.h"

#include "kernel.h"

namespace bowline::detail::cpu::fused_conv_kernels {
namespace {

uint64_t workspace(const device::NodeQuery& node, const Threads& threads) {
  return fused_convolution_scratch_bytes(
      packed_convolution(node.attributes.as<FusedConvAttributes>(), node.inputs[0].shape,
                         node.inputs[1].shape, node.outputs[0].shape),
      threads);
}

void run_fused_conv(const Launch& l) {
  const auto& t = l.attributes<FusedConvAttributes>();
  const auto in = [&](size_t i) { return l.has_input(i) ? l.in[i].f32() : nullptr; };
  const bool normalises = l.in.size() > 4;
  FusedConvolution f = {
      .shape = packed_convolution(t, *l.in[0].shape, *l.in[1].shape, *l.out[0].shape),
      .x = in(0),
      .weight = in(1),
      .bias = in(normalises ? 3 : 2),
      .addend = in(normalises ? 6 : 3),
      .y = l.out[0].f32(),
      .eps = t.eps(),
      .min = t.min(),
      .max = t.max()};
  if (normalises) {
    f.scale = in(2);
    f.mean = in(4);
    f.variance = in(5);
  }
  convolve_fused(l.threads, f, l.workspace);
}

void run_pack(const Launch& l) {
  const Shape& x = *l.in[0].shape;
  pack_outputs(l.threads, static_cast<size_t>(x[0]), static_cast<size_t>(x[1]),
               static_cast<size_t>(x.elements(2, x.rank())), l.in[0].f32(), l.out[0].f32());
}

}  // namespace

BOWLINE_KERNEL(fused_conv, .run = run_fused_conv, .workspace = workspace);
BOWLINE_KERNEL(pack_conv_weight, .run = run_pack);

}  // namespace bowline::detail::cpu::fused_conv_kernels
