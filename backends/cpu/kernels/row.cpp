//! ops(f32, f16, bf16) LayerNorm LayerNormGrad RmsNorm RmsNormGrad
// Operators along the last axis.
#include "compute/row.h"

#include "wide.h"

namespace bowline::cpu {
namespace {

size_t rows(const Arg& a) { return static_cast<size_t>(a.shape->rows()); }
size_t last(const Arg& a) { return static_cast<size_t>(a.shape->back()); }

void run_layer_norm(const Launch& l) {
  layer_norm(l.threads, rows(l.in[0]), last(l.in[0]), l.in[0].f32(), l.in[1].f32(), l.in[2].f32(),
             l.attributes<LayerNormAttributes>().eps(), l.out[0].f32());
}

void run_layer_norm_grad(const Launch& l) {
  layer_norm_backward(l.threads, rows(l.in[0]), last(l.in[0]), l.in[0].f32(), l.in[1].f32(),
                      l.in[2].f32(), l.attributes<LayerNormAttributes>().eps(), l.out[0].f32(),
                      l.out[1].f32(), l.out[2].f32(), l.workspace);
}

void run_rms_norm(const Launch& l) {
  rms_norm(l.threads, rows(l.in[0]), last(l.in[0]), l.in[0].f32(), l.in[1].f32(),
           l.attributes<RmsNormAttributes>().eps(), l.out[0].f32());
}

void run_rms_norm_grad(const Launch& l) {
  rms_norm_backward(l.threads, rows(l.in[0]), last(l.in[0]), l.in[0].f32(), l.in[1].f32(),
                    l.in[2].f32(), l.attributes<RmsNormAttributes>().eps(), l.out[0].f32(),
                    l.out[1].f32(), l.workspace);
}

uint64_t norm_workspace(const device::NodeQuery& node, const Threads&) {
  const Shape& x = node.inputs[0].shape;
  return norm_backward_scratch_bytes(static_cast<size_t>(x.rows()), static_cast<size_t>(x.back()));
}

}  // namespace

BOWLINE_CPU_WIDE_KERNELS(layer_norm, run_layer_norm, no_workspace);
BOWLINE_CPU_WIDE_KERNELS(layer_norm_grad, run_layer_norm_grad, norm_workspace);
BOWLINE_CPU_WIDE_KERNELS(rms_norm, run_rms_norm, no_workspace);
BOWLINE_CPU_WIDE_KERNELS(rms_norm_grad, run_rms_norm_grad, norm_workspace);

}  // namespace bowline::cpu
