// RmsProp: steps relative to a running mean of the squared gradients.
//
//   g = grad * scale + weight_decay * w,  learning_rate = that of the step * learning_rate_factor
//   v = alpha * v + (1 - alpha) * g^2
//   centered:       m = alpha * m + (1 - alpha) * g,  root = sqrt(max(v - m^2, 0)) + eps;  else
//       root = sqrt(v) + eps
//   with momentum:  b = momentum * b + g / root,  w = w - learning_rate * b;               else w =
//       w - learning_rate * g / root
//
// Operands  lists of storages: weights, grads; scale [1]; lists: v, then m if centered, then b with
//           momentum. Updates weights and the lists behind the scale.
// Step      does nothing if error or non_finite is set; sets weights_non_finite.
// Gradient  none.
// Source    Tieleman and Hinton, "Lecture 6.5 - rmsprop", 2012; Graves, "Generating Sequences With
//           Recurrent Neural Networks", 2013, for the centered form; as torch.optim.RMSprop: the
//           decay of the weights is part of the gradient (L2), eps stands outside of the root.
//           Where rounding makes v - m^2 negative PyTorch gives NaN.
//! step learning_rate: f32
//! step non_finite: u32 = 0
//! step writes weights_non_finite: u32 = 0
#include <cmath>

#include "ops/op.h"

namespace bowline::detail::rms_prop_op {
namespace {

// Lists have no shape of their own.
Status infer(InferContext& c) {
  const auto& t = c.attributes<RmsPropAttributes>();
  const int lists = 4 + (t.centered() ? 1 : 0) + (t.momentum() != 0 ? 1 : 0);
  BOWLINE_REQUIRE(c.inputs() == lists,
                  "With a momentum of {} and centered {} there are {} operands.", t.momentum(),
                  t.centered(), c.inputs());
  BOWLINE_REQUIRE(c.in(2) == Shape{1}, "The scale has shape {}.", c.in(2));
  BOWLINE_TRY(c.out(0, c.in(0)));
  return c.out(1, c.in(0));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<RmsPropAttributes>();
  const double scale = c.in(2)[0], decay = t.weight_decay(), alpha = t.alpha();
  const double learning_rate = c.step(step::rms_prop::learning_rate);
  const double rate = learning_rate * t.learning_rate_factor();
  const bool halted = c.facts.error || c.step(step::rms_prop::non_finite) != 0;
  const bool centered = t.centered(), has_momentum = t.momentum() != 0;
  const int momenta = centered ? 5 : 4;  // the input, whose output is two less
  for (int o = 0; o < c.inputs() - 2; ++o) {
    c.zero_magnitude(o);
  }
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    double w = c.in(0)[i], v = c.in(3)[i];
    double m = centered ? c.in(4)[i] : 0;
    double b = has_momentum ? c.in(momenta)[i] : 0;
    double w_size = std::abs(w), v_size = v, m_size = std::abs(m), b_size = std::abs(b);
    if (!halted) {
      const double g = c.in(1)[i] * scale + decay * w;
      const double size = std::abs(c.in(1)[i] * scale) + std::abs(decay * w);
      v = alpha * v + (1 - alpha) * g * g;
      v_size = alpha * v_size + (1 - alpha) * std::abs(g) * size;
      m = alpha * m + (1 - alpha) * g;
      m_size = alpha * m_size + (1 - alpha) * size;
      const double variance = centered ? std::max(v - m * m, 0.0) : v;
      const double shaken = centered ? v_size + std::abs(m) * m_size * 2 : v_size;
      const double root = std::sqrt(variance) + t.eps();
      const double step = g / root;
      // Of the root: half of the relative error of what is under it.
      const double step_size =
          size / root + (variance > 0 ? std::abs(step) * shaken / variance : std::abs(step));
      b = t.momentum() * b + step;
      b_size = t.momentum() * b_size + step_size;
      w_size += std::abs(rate) * (has_momentum ? b_size : step_size);
      w -= rate * (has_momentum ? b : step);
      if (!std::isfinite(w)) {
        c.write(step::rms_prop::weights_non_finite, 1);
      }
    }
    c.out(0)[i] = w;
    c.out(1)[i] = v;
    c.magnitude(0)[i] = w_size;
    c.magnitude(1)[i] = v_size;
    if (centered) {
      c.out(2)[i] = m;
      c.magnitude(2)[i] = m_size;
    }
    if (has_momentum) {
      c.out(momenta - 2)[i] = b;
      c.magnitude(momenta - 2)[i] = b_size;
    }
  }
}

// The gradient three, the means three, the root three, quotient, momentum two, update two.
Tolerance tolerance(ToleranceContext&) { return Tolerance::of_roundings(14); }

}  // namespace

extern const OpDef op_rms_prop;
const OpDef op_rms_prop{
    .name = "RmsProp",
    .inputs = 4,
    .optional_inputs = 2,
    .outputs = 2,
    .optional_outputs = 2,
    .takes_lists = true,
    .list_inputs = 0b111011,
    .types = "f32 -> f32",
    .updates = {{0, 0}, {1, 3}, {2, 4}, {3, 5}},
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::rms_prop_op
