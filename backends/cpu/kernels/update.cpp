//! ops ZeroGrad AccumulateGrad ClipByGlobalNorm Sgd AdamW Adagrad RmsProp Lion Adafactor LossScale
//! ops(f16, bf16) AccumulateGrad RoundWeights
// Gradients of storages and optimizers. List operands hold one entry per storage.
#include "compute/update.h"

#include <cmath>
#include <cstring>

#include "compute/convert.h"
#include "compute/elementwise.h"
#include "core/element_types.h"
#include "kernel.h"

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

// A contribution in 16 bits.
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

template <class T>
void run_round(const Launch& l) {
  for (size_t i = 0; i < l.in[0].list.size(); ++i) {
    const ListItem& master = l.in[0].list[i];
    narrow(l.threads, master.elements, master.data, reinterpret_cast<T*>(l.in[1].list[i].data));
  }
}

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

void run_sgd(const Launch& l) {
  if (l.head.error != 0 || l.step(step::sgd::non_finite) != 0) {
    return;
  }
  const auto& t = l.attributes<SgdAttributes>();
  SgdStep step;
  step.learning_rate = l.step(step::sgd::learning_rate) * t.learning_rate_factor();
  step.momentum = t.momentum();
  step.weight_decay = t.weight_decay();
  step.grad_scale = *l.in[2].f32();
  step.nesterov = t.nesterov();
  step.first = l.step(step::sgd::first_update) != 0;
  for (size_t i = 0; i < l.in[0].list.size(); ++i) {
    const ListItem& w = l.in[0].list[i];
    if (!sgd(l.threads, w.elements, step, l.in[1].list[i].data, w.data,
             l.has_input(3) ? l.in[3].list[i].data : nullptr)) {
      l.step(step::sgd::weights_non_finite) = 1;
    }
  }
}

void run_adamw(const Launch& l) {
  if (l.head.error != 0 || l.step(step::adam_w::non_finite) != 0) {
    return;
  }
  const auto& t = l.attributes<AdamWAttributes>();
  AdamWStep step;
  step.learning_rate =
      static_cast<double>(l.step(step::adam_w::learning_rate) * t.learning_rate_factor());
  step.beta1 = static_cast<double>(t.beta1());
  step.beta2 = static_cast<double>(t.beta2());
  step.eps = static_cast<double>(t.eps());
  step.weight_decay = static_cast<double>(t.weight_decay());
  step.bias_correction1 = static_cast<double>(l.step(step::adam_w::bias_correction1));
  step.bias_correction2 = static_cast<double>(l.step(step::adam_w::bias_correction2));
  step.grad_scale = *l.in[4].f32();
  for (size_t i = 0; i < l.in[0].list.size(); ++i) {
    const ListItem& w = l.in[0].list[i];
    if (!adamw(l.threads, w.elements, step, l.in[1].list[i].data, w.data, l.in[2].list[i].data,
               l.in[3].list[i].data)) {
      l.step(step::adam_w::weights_non_finite) = 1;
    }
  }
}

void run_adagrad(const Launch& l) {
  if (l.head.error != 0 || l.step(step::adagrad::non_finite) != 0) {
    return;
  }
  const auto& t = l.attributes<AdagradAttributes>();
  const auto before = static_cast<float>(l.step(step::adagrad::update) - 1);
  AdagradStep step;
  step.learning_rate = l.step(step::adagrad::learning_rate) * t.learning_rate_factor() /
                       (1 + before * t.learning_rate_decay());
  step.eps = t.eps();
  step.weight_decay = t.weight_decay();
  step.grad_scale = *l.in[3].f32();
  for (size_t i = 0; i < l.in[0].list.size(); ++i) {
    const ListItem& w = l.in[0].list[i];
    if (!adagrad(l.threads, w.elements, step, l.in[1].list[i].data, w.data, l.in[2].list[i].data)) {
      l.step(step::adagrad::weights_non_finite) = 1;
    }
  }
}

void run_rms_prop(const Launch& l) {
  if (l.head.error != 0 || l.step(step::rms_prop::non_finite) != 0) {
    return;
  }
  const auto& t = l.attributes<RmsPropAttributes>();
  RmsPropStep step;
  step.learning_rate = l.step(step::rms_prop::learning_rate) * t.learning_rate_factor();
  step.alpha = t.alpha();
  step.one_minus_alpha = static_cast<float>(1 - static_cast<double>(t.alpha()));
  step.momentum = t.momentum();
  step.eps = t.eps();
  step.weight_decay = t.weight_decay();
  step.grad_scale = *l.in[2].f32();
  const size_t momenta = t.centered() ? 5 : 4;
  for (size_t i = 0; i < l.in[0].list.size(); ++i) {
    const ListItem& w = l.in[0].list[i];
    float* const mean = t.centered() ? l.in[4].list[i].data : nullptr;
    float* const b = t.momentum() != 0 ? l.in[momenta].list[i].data : nullptr;
    if (!rms_prop(l.threads, w.elements, step, l.in[1].list[i].data, w.data, l.in[3].list[i].data,
                  mean, b)) {
      l.step(step::rms_prop::weights_non_finite) = 1;
    }
  }
}

void run_lion(const Launch& l) {
  if (l.head.error != 0 || l.step(step::lion::non_finite) != 0) {
    return;
  }
  const auto& t = l.attributes<LionAttributes>();
  LionStep step;
  step.learning_rate = l.step(step::lion::learning_rate) * t.learning_rate_factor();
  step.keep = 1 - step.learning_rate * t.weight_decay();
  step.beta1 = t.beta1();
  step.one_minus_beta1 = static_cast<float>(1 - static_cast<double>(t.beta1()));
  step.beta2 = t.beta2();
  step.one_minus_beta2 = static_cast<float>(1 - static_cast<double>(t.beta2()));
  step.grad_scale = *l.in[3].f32();
  for (size_t i = 0; i < l.in[0].list.size(); ++i) {
    const ListItem& w = l.in[0].list[i];
    if (!lion(l.threads, w.elements, step, l.in[1].list[i].data, w.data, l.in[2].list[i].data)) {
      l.step(step::lion::weights_non_finite) = 1;
    }
  }
}

// The largest entry of a list has as many elements as its operand.
uint64_t adafactor_workspace(const device::NodeQuery& node, const Threads&) {
  return adafactor_scratch_bytes(static_cast<size_t>(node.inputs[0].shape.elements()));
}

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
  step.eps = t.eps1() == 0 ? 0x1p-23 : static_cast<double>(t.eps1());
  step.eps2 = static_cast<double>(t.eps2());
  step.d = static_cast<double>(t.d());
  step.weight_decay = static_cast<double>(t.weight_decay());
  step.grad_scale = *l.in[2].f32();
  for (size_t i = 0; i < l.in[0].list.size(); ++i) {
    const ListItem& w = l.in[0].list[i];
    if (w.elements == 0) {
      continue;
    }
    const ListItem& row = l.in[3].list[i];
    AdafactorShape shape{1, 1, w.elements};
    float* column = nullptr;
    if (l.has_input(4)) {
      column = l.in[4].list[i].data;
      shape.batch = row.elements * l.in[4].list[i].elements / w.elements;
      shape.rows = row.elements / shape.batch;
      shape.columns = l.in[4].list[i].elements / shape.batch;
    }
    if (!adafactor(l.threads, shape, step, l.in[1].list[i].data, w.data, row.data, column,
                   l.workspace)) {
      l.step(step::adafactor::weights_non_finite) = 1;
    }
  }
}

}  // namespace

extern const Kernel kernel_zero_grad, kernel_accumulate_grad, kernel_clip_by_global_norm,
    kernel_sgd, kernel_adam_w, kernel_adagrad, kernel_rms_prop, kernel_lion, kernel_adafactor,
    kernel_loss_scale, kernel_accumulate_grad_f16, kernel_accumulate_grad_bf16,
    kernel_round_weights_f16, kernel_round_weights_bf16;
const Kernel kernel_zero_grad{.run = run_zero};
const Kernel kernel_accumulate_grad{.run = run_accumulate};
const Kernel kernel_clip_by_global_norm{.run = run_clip, .workspace = clip_workspace};
const Kernel kernel_sgd{.run = run_sgd};
const Kernel kernel_adam_w{.run = run_adamw};
const Kernel kernel_adagrad{.run = run_adagrad};
const Kernel kernel_rms_prop{.run = run_rms_prop};
const Kernel kernel_lion{.run = run_lion};
const Kernel kernel_adafactor{.run = run_adafactor, .workspace = adafactor_workspace};
const Kernel kernel_loss_scale{.run = run_loss_scale};
const Kernel kernel_accumulate_grad_f16{.run = run_accumulate_narrow<f16>};
const Kernel kernel_accumulate_grad_bf16{.run = run_accumulate_narrow<bf16>};
const Kernel kernel_round_weights_f16{.run = run_round<f16>};
const Kernel kernel_round_weights_bf16{.run = run_round<bf16>};

}  // namespace bowline::detail::cpu::update_kernels
