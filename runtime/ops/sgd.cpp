// Sgd: stochastic gradient descent, with momentum and weight decay as options.
//
//   g = grad * scale + weight_decay * w
//   with momentum:  b = first_update ? g : momentum * b + g,  g = nesterov ? g + momentum * b : b
//   w = w - learning_rate * learning_rate_factor * g
//
// Operands  lists of storages: weights, grads; scale [1]; with momentum also momenta. Updates
//           weights and momenta.
// Step      does nothing if error or non_finite is set; sets weights_non_finite.
// Gradient  none.
// Source    Sutskever et al., "On the importance of initialization and momentum in deep learning",
//           2013, in the form of PyTorch, where the learning rate stays outside of the buffer.
//! step learning_rate: f32, first_update: u32 = 0, non_finite: u32 = 0
//! step writes weights_non_finite: u32 = 0
#include <cmath>

#include "ops/op.h"

namespace bowline::detail::sgd_op {
namespace {

// Lists have no shape of their own.
Status infer(InferContext& c) {
  const auto& t = c.attributes<SgdAttributes>();
  BOWLINE_REQUIRE((t.momentum() != 0) == (c.inputs() == 4),
                  "With a momentum of {} there are {} operands.", t.momentum(), c.inputs());
  BOWLINE_REQUIRE(c.in(2) == Shape{1}, "The scale has shape {}.", c.in(2));
  return c.out(0, c.in(0));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<SgdAttributes>();
  const double scale = c.in(2)[0], decay = t.weight_decay(), momentum = t.momentum();
  const double learning_rate = c.step(step::sgd::learning_rate);
  const double rate = learning_rate * t.learning_rate_factor();
  const bool first = c.step(step::sgd::first_update) != 0;
  const bool halted = c.facts.error || c.step(step::sgd::non_finite) != 0;
  const bool has_momentum = c.inputs() == 4;
  for (int o = 0; o < (has_momentum ? 2 : 1); ++o) {
    c.zero_magnitude(o);
  }
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    const double w = c.in(0)[i];
    double b = has_momentum ? c.in(3)[i] : 0;
    double g = c.in(1)[i] * scale + decay * w;
    double size = std::abs(c.in(1)[i] * scale) + std::abs(decay * w);
    if (has_momentum && !halted) {
      const double b_size = (first ? 0 : std::abs(momentum * b)) + size;
      b = first ? g : momentum * b + g;
      g = t.nesterov() ? g + momentum * b : b;
      size = t.nesterov() ? size + momentum * b_size : b_size;
      c.magnitude(1)[i] = b_size;
    }
    c.out(0)[i] = halted ? w : w - rate * g;
    if (!halted && !std::isfinite(c.out(0)[i])) {
      c.write(step::sgd::weights_non_finite, 1);
    }
    c.magnitude(0)[i] = std::abs(w) + std::abs(rate) * size;
    if (has_momentum) {
      c.out(1)[i] = b;
    }
  }
}

Tolerance tolerance(ToleranceContext&) { return Tolerance::of_roundings(6); }

}  // namespace

extern const OpDef op_sgd;
const OpDef op_sgd{
    .name = "Sgd",
    .inputs = 3,
    .optional_inputs = 1,
    .outputs = 1,
    .optional_outputs = 1,
    .takes_lists = true,
    .list_inputs = 0b1011,
    .types = "f32 -> f32",
    .updates = {{0, 0}, {1, 3}},
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::sgd_op
