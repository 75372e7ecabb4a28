//! ops(f32, f16, bf16) Softmax SoftmaxGrad LogSoftmax LogSoftmaxGrad
// Operators along the last axis.
#include "compute/row.h"
#include "wide.h"

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

}  // namespace

BOWLINE_CPU_WIDE_KERNELS(softmax, run<softmax>, no_workspace);
BOWLINE_CPU_WIDE_KERNELS(softmax_grad, run_grad<softmax_backward>, no_workspace);
BOWLINE_CPU_WIDE_KERNELS(log_softmax, run<log_softmax>, no_workspace);
BOWLINE_CPU_WIDE_KERNELS(log_softmax_grad, run_grad<log_softmax_backward>, no_workspace);

}  // namespace bowline::detail::cpu::softmax_kernels
