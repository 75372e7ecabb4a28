//! ops(f32, f16, bf16) Softmax SoftmaxGrad LogSoftmax LogSoftmaxGrad
// Operators along the last axis. f16 and bf16 are converted to f32 in the workspace, and the
// results back.
#include "compute/convert.h"
#include "compute/row.h"
#include "kernel.h"

namespace bowline::detail::cpu::softmax_kernels {
namespace {

size_t rows(const Arg& a) { return a.elements() == 0 ? 0 : static_cast<size_t>(a.shape->rows()); }
size_t last(const Arg& a) { return static_cast<size_t>(a.shape->back()); }

using Forward = void (*)(Threads& threads, size_t rows, size_t n, const float* x, float* y);
using Backward = void (*)(Threads& threads, size_t rows, size_t n, const float* y, const float* dy,
                          float* dx);

template <Forward f>
void run(const Launch& l) {
  f(l.threads, rows(l.in[0]), last(l.in[0]), l.in[0].f32(), l.out[0].f32());
}

template <Backward f>
void run_grad(const Launch& l) {
  f(l.threads, rows(l.in[0]), last(l.in[0]), l.in[0].f32(), l.in[1].f32(), l.out[0].f32());
}

template <class T, Forward f>
void run_narrow(const Launch& l) {
  const auto n = static_cast<size_t>(l.out[0].elements());
  auto* const x = reinterpret_cast<float*>(l.workspace);
  widen(l.threads, n, l.in[0].as<const T>(), x);
  f(l.threads, rows(l.in[0]), last(l.in[0]), x, x);
  narrow(l.threads, n, x, l.out[0].as<T>());
}

template <class T, Backward f>
void run_grad_narrow(const Launch& l) {
  const auto n = static_cast<size_t>(l.out[0].elements());
  auto* const y = reinterpret_cast<float*>(l.workspace);
  float* const dy = y + n;
  widen(l.threads, n, l.in[0].as<const T>(), y);
  widen(l.threads, n, l.in[1].as<const T>(), dy);
  f(l.threads, rows(l.in[0]), last(l.in[0]), y, dy, dy);
  narrow(l.threads, n, dy, l.out[0].as<T>());
}

// The inputs as f32.
uint64_t workspace(const device::NodeQuery& node, const Threads&) {
  return static_cast<uint64_t>(node.inputs[0].shape.elements()) * node.inputs.size() *
         sizeof(float);
}

}  // namespace

extern const Kernel kernel_softmax, kernel_softmax_f16, kernel_softmax_bf16;
const Kernel kernel_softmax{.run = run<softmax>};
const Kernel kernel_softmax_f16{.run = run_narrow<f16, softmax>, .workspace = workspace};
const Kernel kernel_softmax_bf16{.run = run_narrow<bf16, softmax>, .workspace = workspace};

extern const Kernel kernel_softmax_grad, kernel_softmax_grad_f16, kernel_softmax_grad_bf16;
const Kernel kernel_softmax_grad{.run = run_grad<softmax_backward>};
const Kernel kernel_softmax_grad_f16{.run = run_grad_narrow<f16, softmax_backward>,
                                     .workspace = workspace};
const Kernel kernel_softmax_grad_bf16{.run = run_grad_narrow<bf16, softmax_backward>,
                                      .workspace = workspace};

extern const Kernel kernel_log_softmax, kernel_log_softmax_f16, kernel_log_softmax_bf16;
const Kernel kernel_log_softmax{.run = run<log_softmax>};
const Kernel kernel_log_softmax_f16{.run = run_narrow<f16, log_softmax>, .workspace = workspace};
const Kernel kernel_log_softmax_bf16{.run = run_narrow<bf16, log_softmax>, .workspace = workspace};

extern const Kernel kernel_log_softmax_grad, kernel_log_softmax_grad_f16,
    kernel_log_softmax_grad_bf16;
const Kernel kernel_log_softmax_grad{.run = run_grad<log_softmax_backward>};
const Kernel kernel_log_softmax_grad_f16{.run = run_grad_narrow<f16, log_softmax_backward>,
                                         .workspace = workspace};
const Kernel kernel_log_softmax_grad_bf16{.run = run_grad_narrow<bf16, log_softmax_backward>,
                                          .workspace = workspace};

}  // namespace bowline::detail::cpu::softmax_kernels
