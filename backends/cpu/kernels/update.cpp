//! optimizers(f32, f16, bf16)
//! ops ZeroGrad AccumulateGrad ClipByGlobalNorm LossScale
//! ops(f16, bf16) AccumulateGrad
// Gradient storages (zero, add, clip, loss scale), and optimizers. List operands hold one entry per
// storage.
#include "compute/update.h"

#include <cmath>
#include <cstring>

#include "compute/convert.h"
#include "compute/elementwise.h"
#include "core/element_types.h"
#include "kernel.h"
#include "masters.h"

namespace bowline::detail::cpu::update_kernels {
namespace {

void run_zero(const Launch& l) {
  if (l.head.accumulate != 0) {
    return;
  }
  for (const ListItem& g : l.in[0].list) {
    std::memset(g.data, 0, g.elements * sizeof(float));
  }
}

void run_accumulate(const Launch& l) {
  const ListItem& g = l.in[0].entry;
  const float* from = l.in[1].f32();
  if (g.elements == 0) {
    return;
  }
  if (g.first && l.head.accumulate == 0) {
    parallel_blocks(l.threads, static_cast<int64_t>(g.elements), 16384,
                    [&](int64_t begin, int64_t end) {
                      std::memcpy(g.data + begin, from + begin,
                                  static_cast<size_t>(end - begin) * sizeof(float));
                    });
  } else {
    elementwise(l.threads, {Function::add_binary}, g.elements, {{g.data}, {from}}, g.data);
  }
}

// For a contribution in f16 or bf16.
template <class T>
void run_accumulate_narrow(const Launch& l) {
  const ListItem& g = l.in[0].entry;
  const T* from = l.in[1].as<const T>();
  if (g.elements == 0) {
    return;
  }
  const bool overwrites = g.first && l.head.accumulate == 0;
  if (overwrites) {
    return widen(l.threads, g.elements, from, g.data);
  }
  constexpr int64_t kBlock = 1024;
  parallel_blocks(l.threads, static_cast<int64_t>(g.elements), 16 * kBlock,
                  [&](int64_t begin, int64_t end) {
                    float wide[kBlock];
                    for (int64_t i = begin; i < end; i += kBlock) {
                      const int64_t n = std::min(kBlock, end - i);
                      widen(static_cast<size_t>(n), from + i, wide);
                      for (int64_t k = 0; k < n; ++k) {
                        g.data[i + k] += wide[k];
                      }
                    }
                  });
}

void run_loss_scale(const Launch& l) { *l.out[0].f32() = l.step(step::loss_scale::loss_scale); }

uint64_t clip_workspace(const device::NodeQuery& node, const Threads&) {
  return sum_of_squares_scratch_bytes(static_cast<size_t>(node.inputs[0].shape.elements()));
}

void run_clip(const Launch& l) {
  double sum = 0;
  for (const ListItem& g : l.in[0].list) {
    sum += sum_of_squares(l.threads, g.elements, g.data, l.workspace);
  }
  const double scale = static_cast<double>(l.step(step::clip_by_global_norm::gradient_scale));
  const double norm = scale * std::sqrt(sum);
  const double max_norm =
      static_cast<double>(l.attributes<ClipByGlobalNormAttributes>().max_norm());
  const auto grad_norm = static_cast<float>(norm);
  l.step(step::clip_by_global_norm::grad_norm) = grad_norm;
  const bool loss_is_finite = !l.has_input(1) || std::isfinite(*l.in[1].f32());
  if (!std::isfinite(grad_norm) || !loss_is_finite) {
    l.step(step::clip_by_global_norm::non_finite) = 1;
  }
  *l.out[0].f32() =
      static_cast<float>(scale * (max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0));
}

template <class T>
void run_update(const Launch& l) {
  const Op op = l.record.op;
  const auto last = static_cast<uint32_t>(step_words(op).size() - 1);
  const StepWord<uint32_t> non_finite{last - 1};
  const StepWord<uint32_t> weights_non_finite{last};
  if (l.head.error != 0 || l.step(non_finite) != 0) {
    return;
  }
  const UpdateOperands operands = update_operands(op, l.record.attributes);
  std::array<uint32_t, kMostOptimizerWords> words;
  for (uint32_t i = 0; i < last; ++i) {
    words[i] = l.step(StepWord<uint32_t>{i});
  }
  const Update call{op, operands.numbers, words, *l.in[kUpdateScale].f32()};
  const size_t values = updated_values(l.record.type, l.in.size());
  for (size_t i = 0; i < l.in[0].list.size(); ++i) {
    const ListItem& w = l.in[values].list[i];
    States states = {};
    for (size_t s = 0; s < states.size(); ++s) {
      states[s] = operands.states[s] ? l.in[*operands.states[s]].list[i].data : nullptr;
    }
    if (!update(l.threads, call, w.elements, l.in[1].list[i].data, w.data, states)) {
      l.step(weights_non_finite) = 1;
    }
    round_weights<T>(l, w, i);
  }
}

}  // namespace

BOWLINE_KERNEL(zero_grad, .run = run_zero);
BOWLINE_KERNEL(accumulate_grad, .run = run_accumulate);
BOWLINE_KERNEL(clip_by_global_norm, .run = run_clip, .workspace = clip_workspace);
BOWLINE_KERNELS_OF_FLOATS(optimizers, .run = run_update<T>);
BOWLINE_KERNEL(loss_scale, .run = run_loss_scale);
BOWLINE_KERNEL(accumulate_grad_f16, .run = run_accumulate_narrow<f16>);
BOWLINE_KERNEL(accumulate_grad_bf16, .run = run_accumulate_narrow<bf16>);

}  // namespace bowline::detail::cpu::update_kernels
