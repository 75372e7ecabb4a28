// Lion: steps of one size, in the direction of the sign of a momentum.
//
//   g = grad * scale,  learning_rate = that of the step * learning_rate_factor
//   w = w * (1 - learning_rate * weight_decay) - learning_rate * sign(beta1 * m + (1 - beta1) * g)
//   m = beta2 * m + (1 - beta2) * g
//
// Operands  lists of storages: weights, grads, m; scale [1]. Updates weights and m.
// Step      does nothing if error or non_finite is set; sets weights_non_finite.
// Numerics  the sign of 0 is 0. Where the rounding errors of the sum are larger than the sum, its
//           sign may be any.
// Gradient  none.
// Source    Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023, algorithm 2;
//           decoupled weight decay. PyTorch has none.
//! step learning_rate: f32
//! step non_finite: u32 = 0
//! step writes weights_non_finite: u32 = 0
#include <cmath>

#include "ops/op.h"

namespace bowline::detail::lion_op {
namespace {

constexpr double kRoundings = 8;

// Lists have no shape of their own.
Status infer(InferContext& c) {
  BOWLINE_REQUIRE(c.in(3) == Shape{1}, "The scale has shape {}.", c.in(3));
  BOWLINE_TRY(c.out(0, c.in(0)));
  return c.out(1, c.in(0));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<LionAttributes>();
  const double scale = c.in(3)[0], beta1 = t.beta1(), beta2 = t.beta2();
  const double learning_rate = c.step(step::lion::learning_rate);
  const double rate = learning_rate * t.learning_rate_factor();
  const bool halted = c.facts.error || c.step(step::lion::non_finite) != 0;
  const auto w_magnitude = c.zero_magnitude(0);
  const auto m_magnitude = c.zero_magnitude(1);
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    double w = c.in(0)[i], m = c.in(2)[i];
    w_magnitude[i] = std::abs(w);
    m_magnitude[i] = std::abs(m);
    if (!halted) {
      const double g = c.in(1)[i] * scale;
      const double direction = beta1 * m + (1 - beta1) * g;
      const double shaken = std::ldexp(4 * (beta1 * std::abs(m) + (1 - beta1) * std::abs(g)), -24);
      const double sign = direction > 0 ? 1 : direction < 0 ? -1 : 0;
      w_magnitude[i] += std::abs(rate * t.weight_decay() * w) + std::abs(rate);
      if (direction != 0 && std::abs(direction) <= shaken) {
        w_magnitude[i] += std::ldexp(2 * std::abs(rate) / kRoundings, 24);
      }
      w = w * (1 - rate * t.weight_decay()) - rate * sign;
      m_magnitude[i] = beta2 * std::abs(m) + (1 - beta2) * std::abs(g);
      m = beta2 * m + (1 - beta2) * g;
      if (!std::isfinite(w)) {
        c.write(step::lion::weights_non_finite, 1);
      }
    }
    c.out(0)[i] = w;
    c.out(1)[i] = m;
  }
}

Tolerance tolerance(ToleranceContext&) { return Tolerance::of_roundings(kRoundings); }

}  // namespace

extern const OpDef op_lion;
const OpDef op_lion{
    .name = "Lion",
    .inputs = 4,
    .outputs = 2,
    .takes_lists = true,
    .list_inputs = 0b0111,
    .types = "f32 -> f32",
    .updates = {{0, 0}, {1, 2}},
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::lion_op
