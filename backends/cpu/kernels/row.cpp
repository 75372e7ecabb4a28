//! ops(f32, f16, bf16) LayerNorm LayerNormGrad RmsNorm RmsNormGrad
// Operators along the last axis.
#include "compute/row.h"

#include "kernel.h"

namespace bowline::detail::cpu::row_kernels {
namespace {

size_t rows(const Arg& a) { return static_cast<size_t>(a.shape->rows()); }
size_t last(const Arg& a) { return static_cast<size_t>(a.shape->back()); }

template <class T>
void run_layer_norm(const Launch& l) {
  layer_norm(l.threads, rows(l.in[0]), last(l.in[0]), l.in[0].as<const T>(), l.in[1].as<const T>(),
             l.in[2].as<const T>(), l.attributes<LayerNormAttributes>().eps(), l.out[0].as<T>());
}

template <class T>
void run_layer_norm_grad(const Launch& l) {
  layer_norm_backward(l.threads, rows(l.in[0]), last(l.in[0]), l.in[0].as<const T>(),
                      l.in[1].as<const T>(), l.in[2].as<const T>(),
                      l.attributes<LayerNormAttributes>().eps(), l.out[0].as<T>(), l.out[1].as<T>(),
                      l.out[2].as<T>(), l.workspace);
}

template <class T>
void run_rms_norm(const Launch& l) {
  rms_norm(l.threads, rows(l.in[0]), last(l.in[0]), l.in[0].as<const T>(), l.in[1].as<const T>(),
           l.attributes<RmsNormAttributes>().eps(), l.out[0].as<T>());
}

template <class T>
void run_rms_norm_grad(const Launch& l) {
  rms_norm_backward(l.threads, rows(l.in[0]), last(l.in[0]), l.in[0].as<const T>(),
                    l.in[1].as<const T>(), l.in[2].as<const T>(),
                    l.attributes<RmsNormAttributes>().eps(), l.out[0].as<T>(), l.out[1].as<T>(),
                    l.workspace);
}

uint64_t norm_workspace(const device::NodeQuery& node, const Threads&) {
  const Shape& x = node.inputs[0].shape;
  return norm_backward_scratch_bytes(static_cast<size_t>(x.rows()), static_cast<size_t>(x.back()));
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(layer_norm, .run = run_layer_norm<T>);
BOWLINE_KERNELS_OF_FLOATS(layer_norm_grad, .run = run_layer_norm_grad<T>,
                          .workspace = norm_workspace);
BOWLINE_KERNELS_OF_FLOATS(rms_norm, .run = run_rms_norm<T>);
BOWLINE_KERNELS_OF_FLOATS(rms_norm_grad, .run = run_rms_norm_grad<T>, .workspace = norm_workspace);

}  // namespace bowline::detail::cpu::row_kernels
