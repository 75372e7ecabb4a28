//! ops(f32, f16, bf16) Adafactor
#include "compute/adafactor.h"

#include <cmath>

#include "core/optimizers.h"
#include "kernel.h"
#include "masters.h"

namespace bowline::detail::cpu::adafactor_kernels {
namespace {

// The operand has as many elements as the largest entry of its list.
uint64_t adafactor_workspace(const device::NodeQuery& node, const Threads&) {
  return adafactor_scratch_bytes(static_cast<size_t>(node.inputs[0].shape.elements()));
}

template <class T>
void run_adafactor(const Launch& l) {
  if (l.head.error != 0 || l.step(step::adafactor::non_finite) != 0) {
    return;
  }
  const auto& t = l.attributes<AdafactorAttributes>();
  const auto update = static_cast<double>(l.step(step::adafactor::update));
  AdafactorStep step;
  step.learning_rate = static_cast<double>(l.step(step::adafactor::learning_rate)) *
                       static_cast<double>(t.learning_rate_factor());
  step.least_rate = 1 / std::sqrt(update);
  step.beta = std::pow(update, static_cast<double>(t.beta2_decay()));
  step.eps = t.eps() == 0 ? 0x1p-23 : static_cast<double>(t.eps());
  step.eps2 = static_cast<double>(t.eps2());
  step.d = static_cast<double>(t.update_clip());
  step.weight_decay = static_cast<double>(t.weight_decay());
  step.grad_scale = *l.in[2].f32();
  const size_t values = updated_values(l.record.type, l.in.size());
  const bool matrices = l.in.size() == (values == 0 ? 5 : 6);
  for (size_t i = 0; i < l.in[0].list.size(); ++i) {
    const ListItem& w = l.in[values].list[i];
    if (w.elements == 0) {
      continue;
    }
    const ListItem& row = l.in[3].list[i];
    AdafactorShape shape{1, 1, static_cast<size_t>(w.elements)};
    float* column = nullptr;
    if (matrices) {
      column = l.in[4].list[i].data;
      shape.batch = row.elements * l.in[4].list[i].elements / w.elements;
      shape.rows = row.elements / shape.batch;
      shape.columns = l.in[4].list[i].elements / shape.batch;
    }
    if (!adafactor(l.threads, shape, step, l.in[1].list[i].data, w.data, row.data, column,
                   l.workspace)) {
      l.step(step::adafactor::weights_non_finite) = 1;
    }
    round_weights<T>(l, w, i);
  }
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(adafactor, .run = run_adafactor<T>, .workspace = adafactor_workspace);

}  // namespace bowline::detail::cpu::adafactor_kernels
