// ClipByGlobalNorm: the factor that limits the global norm of all gradients.
//
//   norm  = gradient_scale * sqrt(sum over all elements of all gradients of g^2)
//   scale = gradient_scale * (max_norm > 0 && norm > max_norm ? max_norm / norm : 1)
//
// Shapes    a list of gradients, optionally the loss []  ->  scale [1].
// Step      writes grad_norm = norm. Sets non_finite if the norm or the loss is not finite.
// Numerics  accumulated in f32 or wider. In f32, squares can underflow or overflow: a norm below
//           1e-19 can become 0, and a norm above 1e19 can become infinite.
// Gradient  none.
// Source    Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks",
//           2013. PyTorch's clip_grad_norm_ divides by norm + 1e-6, so it clips slightly more.
//! step gradient_scale: f32 = 1
//! step writes grad_norm: f32, non_finite: u32 = 0
#include <cmath>

#include "ops/op.h"

namespace bowline::detail::clip_by_global_norm_op {
namespace {

Status infer(InferContext& c) {
  const float bound = c.attributes<ClipByGlobalNormAttributes>().max_norm();
  BOWLINE_REQUIRE(bound >= 0, "The bound of the norm ({}) is negative.", bound);
  BOWLINE_REQUIRE(c.inputs() == 1 || c.in(1).elements() == 1,
                  "The loss has shape {}, not one element.", c.in(1));
  return c.out(0, Shape{1});
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const double bound = c.attributes<ClipByGlobalNormAttributes>().max_norm();
  double sum = 0;
  for (const double g : c.in(0)) {
    sum += g * g;
  }
  const double gradient_scale = c.step(step::clip_by_global_norm::gradient_scale);
  const double norm = gradient_scale * std::sqrt(sum);
  c.write(step::clip_by_global_norm::grad_norm, norm);
  if (!std::isfinite(norm) || (c.inputs() > 1 && !std::isfinite(c.in(1)[0]))) {
    c.write(step::clip_by_global_norm::non_finite, 1);
  }
  c.out(0)[0] = gradient_scale * (bound > 0 && norm > bound ? bound / norm : 1);
  if (!std::isfinite(norm)) {
    c.outcome.undefined_outputs = 0b1;  // unused: the optimizers skip the update
  }
}

// Squares below the smallest normal f32 are lost.
Tolerance tolerance(ToleranceContext& c) {
  Tolerance t = Tolerance::of_reduction(c.in(0).elements(), 4);
  t.absolute = std::sqrt(static_cast<double>(c.in(0).elements()) * 0x1p-126);
  return t;
}

}  // namespace

extern const OpDef op_clip_by_global_norm{
    .name = "ClipByGlobalNorm",
    .optional_inputs = 1,
    .takes_lists = true,
    .types = "f32 -> f32",
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::clip_by_global_norm_op
