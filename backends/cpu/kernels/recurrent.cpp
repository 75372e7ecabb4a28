//! ops(f32, f16, bf16) Lstm LstmGrad Gru GruGrad
// Recurrent layers. For 16-bit dtypes, all steps and the states between them are f32.
#include "compute/recurrent.h"

#include "core/recurrent.h"
#include "wide.h"

namespace bowline::detail::cpu::recurrent_kernels {
namespace {

template <class Node>
RecurrentShape shape_of(const Node& node) {
  const RecurrentLayer layer = recurrent_layer_of(node);
  return {layer.units == 0 ? 0 : layer.gates, static_cast<size_t>(layer.steps), layer.batch,
          layer.units, layer.reverse};
}

uint64_t workspace(const device::NodeQuery& node, const Threads& threads) {
  return recurrent_scratch_bytes(shape_of(node), threads);
}

void run_lstm(const Launch& l) {
  lstm(l.threads, shape_of(l.record),
       {l.in[0].f32(), l.in[1].f32(), l.in[2].f32(), l.in[3].f32(), l.out[0].f32(), l.out[1].f32(),
        l.out[2].f32()},
       l.workspace);
}

void run_lstm_grad(const Launch& l) {
  lstm_backward(
      l.threads, shape_of(l.record),
      {l.in[0].f32(), l.in[1].f32(), l.in[2].f32(), l.in[3].f32(), l.in[4].f32(),
       l.has_input(5) ? l.in[5].f32() : nullptr, l.out[0].f32(), l.out[1].f32(), l.out[2].f32()},
      l.workspace);
}

void run_gru(const Launch& l) {
  gru(l.threads, shape_of(l.record),
      {l.in[0].f32(), l.in[1].f32(), l.in[2].f32(), l.has_input(3) ? l.in[3].f32() : nullptr,
       l.out[0].f32(), l.out[1].f32(), l.out[2].f32(), l.attributes<GruAttributes>().reset_after()},
      l.workspace);
}

void run_gru_grad(const Launch& l) {
  gru_backward(
      l.threads, shape_of(l.record),
      {l.in[0].f32(), l.in[1].f32(), l.in[2].f32(), l.in[3].f32(), l.in[4].f32(), l.in[5].f32(),
       l.out[0].f32(), l.out[1].f32(), l.out[2].f32(), l.attributes<GruAttributes>().reset_after()},
      l.workspace);
}

}  // namespace

BOWLINE_CPU_WIDE_KERNELS(lstm, run_lstm, workspace);
BOWLINE_CPU_WIDE_KERNELS(lstm_grad, run_lstm_grad, workspace);
BOWLINE_CPU_WIDE_KERNELS(gru, run_gru, workspace);
BOWLINE_CPU_WIDE_KERNELS(gru_grad, run_gru_grad, workspace);

}  // namespace bowline::detail::cpu::recurrent_kernels
