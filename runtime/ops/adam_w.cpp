// AdamW: Adam with decoupled weight decay.
//
//   g = grad * scale,  learning_rate = that of the step * learning_rate_factor
//   w = w * (1 - learning_rate * weight_decay)
//   m = beta1 * m + (1 - beta1) * g,  v = beta2 * v + (1 - beta2) * g^2
//   w = w - learning_rate * (m / bias_correction1) / (sqrt(v / bias_correction2) + eps)
//
// Operands  lists of storages: weights, grads, m, v; scale [1]. Updates weights, m and v.
// Step      bias_correction = 1 - beta^t; does nothing if error or non_finite is set; sets
//           weights_non_finite.
// Gradient  none.
// Source    Loshchilov, Hutter, "Decoupled Weight Decay Regularization", 2019, algorithm 2.
//! step learning_rate: f32, bias_correction1: f32 = 1, bias_correction2: f32 = 1
//! step non_finite: u32 = 0
//! step writes weights_non_finite: u32 = 0
#include <cmath>

#include "ops/op.h"

namespace bowline::detail::adam_w_op {
namespace {

// Lists have no shape of their own.
Status infer(InferContext& c) {
  BOWLINE_REQUIRE(c.in(4) == Shape{1}, "The scale has shape {}.", c.in(4));
  for (const int i : {0, 1, 2}) {
    BOWLINE_TRY(c.out(i, c.in(0)));
  }
  return {};
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<AdamWAttributes>();
  const double scale = c.in(4)[0], beta1 = t.beta1(), beta2 = t.beta2();
  const double learning_rate = c.step(step::adam_w::learning_rate);
  const double rate = learning_rate * t.learning_rate_factor();
  const double correction1 = c.step(step::adam_w::bias_correction1);
  const double correction2 = c.step(step::adam_w::bias_correction2);
  const bool halted = c.facts.error || c.step(step::adam_w::non_finite) != 0;
  const auto w_magnitude = c.zero_magnitude(0);
  const auto m_magnitude = c.zero_magnitude(1);
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    double w = c.in(0)[i], m = c.in(2)[i], v = c.in(3)[i];
    if (!halted) {
      const double g = c.in(1)[i] * scale;
      m_magnitude[i] = beta1 * std::abs(m) + (1 - beta1) * std::abs(g);
      w = w * (1 - rate * t.weight_decay());
      m = beta1 * m + (1 - beta1) * g;
      v = beta2 * v + (1 - beta2) * g * g;
      const double root = std::sqrt(v / correction2) + t.eps();
      w_magnitude[i] = std::abs(w) + rate * m_magnitude[i] / correction1 / root;
      w = w - rate * (m / correction1) / root;
      if (!std::isfinite(w)) {
        c.write(step::adam_w::weights_non_finite, 1);
      }
    }
    c.out(0)[i] = w;
    c.out(1)[i] = m;
    c.out(2)[i] = v;
  }
}

Tolerance tolerance(ToleranceContext&) { return Tolerance::of_roundings(10); }

}  // namespace

extern const OpDef op_adam_w;
const OpDef op_adam_w{
    .name = "AdamW",
    .inputs = 5,
    .outputs = 3,
    .takes_lists = true,
    .list_inputs = 0b01111,
    .types = "f32 -> f32",
    .updates = {{0, 0}, {1, 2}, {2, 3}},
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::adam_w_op
