//! ops(f32, f16, bf16) LayerNorm LayerNormGrad RmsNorm RmsNormGrad
// Operators along the last axis.
#include "compute/row.h"

#include "kernel.h"

namespace bowline::detail::cpu::row_kernels {
namespace {

size_t rows(const Arg& a) { return static_cast<size_t>(a.shape->rows()); }
size_t last(const Arg& a) { return static_cast<size_t>(a.shape->back()); }

template <bool kLayer>
float eps_of(const Launch& l) {
  if constexpr (kLayer) {
    return l.attributes<LayerNormAttributes>().eps();
  } else {
    return l.attributes<RmsNormAttributes>().eps();
  }
}

template <bool kLayer, class T>
void run(const Launch& l) {
  norm(l.threads, rows(l.in[0]), last(l.in[0]), l.in[0].as<const T>(), l.in[1].as<const T>(),
       kLayer ? l.in[2].as<const T>() : nullptr, eps_of<kLayer>(l), l.out[0].as<T>());
}

template <bool kLayer, class T>
void run_grad(const Launch& l) {
  norm_backward(l.threads, rows(l.in[0]), last(l.in[0]), l.in[0].as<const T>(),
                l.in[1].as<const T>(), l.in[2].as<const T>(), eps_of<kLayer>(l), l.out[0].as<T>(),
                l.out[1].as<T>(), kLayer ? l.out[2].as<T>() : nullptr, l.workspace);
}

uint64_t norm_workspace(const device::NodeQuery& node, const Threads&) {
  const Shape& x = node.inputs[0].shape;
  return norm_backward_scratch_bytes(static_cast<size_t>(x.rows()), static_cast<size_t>(x.back()));
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(layer_norm, .run = run<true, T>);
BOWLINE_KERNELS_OF_FLOATS(layer_norm_grad, .run = run_grad<true, T>, .workspace = norm_workspace);
BOWLINE_KERNELS_OF_FLOATS(rms_norm, .run = run<false, T>);
BOWLINE_KERNELS_OF_FLOATS(rms_norm_grad, .run = run_grad<false, T>, .workspace = norm_workspace);

}  // namespace bowline::detail::cpu::row_kernels
