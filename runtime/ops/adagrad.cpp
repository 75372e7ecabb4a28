// Adagrad: steps that shrink with the sum of all squared gradients.
//
//   g = grad * scale + weight_decay * w
//   s = s + g^2
//   w = w - learning_rate * learning_rate_factor / (1 + (update - 1) * learning_rate_decay) * g /
//       (sqrt(s) + eps)
//
// Operands  lists of storages: weights, grads, s; scale [1]. Updates weights and s.
// Step      update counts from 1; does nothing if error or non_finite is set; sets
//           weights_non_finite.
// Gradient  none.
// Source    Duchi, Hazan, Singer, "Adaptive Subgradient Methods for Online Learning", 2011, as
//           torch.optim.Adagrad: the decay of the weights is part of the gradient (L2), s begins at
//           0.
//! step learning_rate: f32, update: u32 = 1
//! step non_finite: u32 = 0
//! step writes weights_non_finite: u32 = 0
#include <cmath>

#include "ops/op.h"

namespace bowline::detail::adagrad_op {
namespace {

// Lists have no shape of their own.
Status infer(InferContext& c) {
  BOWLINE_REQUIRE(c.in(3) == Shape{1}, "The scale has shape {}.", c.in(3));
  BOWLINE_TRY(c.out(0, c.in(0)));
  return c.out(1, c.in(0));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<AdagradAttributes>();
  const double scale = c.in(3)[0], decay = t.weight_decay();
  const double before = static_cast<double>(c.step(step::adagrad::update)) - 1;
  const double learning_rate = c.step(step::adagrad::learning_rate);
  const double rate =
      learning_rate * t.learning_rate_factor() / (1 + before * t.learning_rate_decay());
  const bool halted = c.facts.error || c.step(step::adagrad::non_finite) != 0;
  const auto w_magnitude = c.zero_magnitude(0);
  const auto s_magnitude = c.zero_magnitude(1);
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    double w = c.in(0)[i], s = c.in(2)[i];
    w_magnitude[i] = std::abs(w);
    s_magnitude[i] = s;
    if (!halted) {
      const double g = c.in(1)[i] * scale + decay * w;
      const double size = std::abs(c.in(1)[i] * scale) + std::abs(decay * w);
      s += g * g;
      s_magnitude[i] += std::abs(g) * size;
      const double root = std::sqrt(s) + t.eps();
      // A gradient that cancels shakes the root by no more than itself.
      w_magnitude[i] += std::abs(rate) * size / root * (1 + std::abs(g) / root);
      w -= rate * g / root;
      if (!std::isfinite(w)) {
        c.write(step::adagrad::weights_non_finite, 1);
      }
    }
    c.out(0)[i] = w;
    c.out(1)[i] = s;
  }
}

// The gradient three, its square two, the root three with eps, the rate three, quotient, product
// and difference.
Tolerance tolerance(ToleranceContext&) { return Tolerance::of_roundings(14); }

}  // namespace

extern const OpDef op_adagrad;
const OpDef op_adagrad{
    .name = "Adagrad",
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

}  // namespace bowline::detail::adagrad_op
