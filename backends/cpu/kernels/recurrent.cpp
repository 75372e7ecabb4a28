//! ops(f32, f16, bf16) Lstm LstmGrad Gru GruGrad
// Recurrent layers. For 16-bit dtypes, all steps and the states between them are f32.
#include "compute/recurrent.h"

#include "wide.h"

namespace bowline::detail::cpu::recurrent_kernels {
namespace {

// From the shapes of the gates, or of their gradient, and of the weight.
RecurrentShape shape_of(const Shape& gates, const Shape& w, bool reverse) {
  RecurrentShape s;
  s.steps = static_cast<size_t>(gates[0]);
  s.batch = static_cast<size_t>(gates[1]);
  s.units = static_cast<size_t>(w[1]);
  s.gates = s.units == 0 ? 0 : static_cast<size_t>(w[0] / w[1]);
  s.reverse = reverse;
  return s;
}

// GruGrad has its weight after the recurrent part.
template <size_t kWeight>
uint64_t workspace(const device::NodeQuery& node, const Threads& threads) {
  return recurrent_scratch_bytes(shape_of(node.inputs[0].shape, node.inputs[kWeight].shape, false),
                                 threads);
}

void run_lstm(const Launch& l) {
  const bool reverse = l.attributes<LstmAttributes>().reverse();
  lstm(l.threads, shape_of(*l.in[0].shape, *l.in[1].shape, reverse),
       {l.in[0].f32(), l.in[1].f32(), l.in[2].f32(), l.in[3].f32(), l.out[0].f32(), l.out[1].f32(),
        l.out[2].f32()},
       l.workspace);
}

void run_lstm_grad(const Launch& l) {
  const bool reverse = l.attributes<LstmAttributes>().reverse();
  lstm_backward(
      l.threads, shape_of(*l.in[0].shape, *l.in[1].shape, reverse),
      {l.in[0].f32(), l.in[1].f32(), l.in[2].f32(), l.in[3].f32(), l.in[4].f32(),
       l.has_input(5) ? l.in[5].f32() : nullptr, l.out[0].f32(), l.out[1].f32(), l.out[2].f32()},
      l.workspace);
}

void run_gru(const Launch& l) {
  const auto& t = l.attributes<GruAttributes>();
  gru(l.threads, shape_of(*l.in[0].shape, *l.in[1].shape, t.reverse()),
      {l.in[0].f32(), l.in[1].f32(), l.in[2].f32(), l.has_input(3) ? l.in[3].f32() : nullptr,
       l.out[0].f32(), l.out[1].f32(), l.out[2].f32(), t.reset_after()},
      l.workspace);
}

void run_gru_grad(const Launch& l) {
  const auto& t = l.attributes<GruAttributes>();
  gru_backward(l.threads, shape_of(*l.in[0].shape, *l.in[2].shape, t.reverse()),
               {l.in[0].f32(), l.in[1].f32(), l.in[2].f32(), l.in[3].f32(), l.in[4].f32(),
                l.in[5].f32(), l.out[0].f32(), l.out[1].f32(), l.out[2].f32(), t.reset_after()},
               l.workspace);
}

}  // namespace

BOWLINE_CPU_WIDE_KERNELS(lstm, run_lstm, workspace<1>);
BOWLINE_CPU_WIDE_KERNELS(lstm_grad, run_lstm_grad, workspace<1>);
BOWLINE_CPU_WIDE_KERNELS(gru, run_gru, workspace<1>);
BOWLINE_CPU_WIDE_KERNELS(gru_grad, run_gru_grad, workspace<2>);

}  // namespace bowline::detail::cpu::recurrent_kernels
