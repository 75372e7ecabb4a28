// LayerNorm: normalizes the last axis, then scales and shifts.
//
//   y = (x - mean(x)) / sqrt(var(x) + eps) * gamma + beta
//
// Shapes    x [..., n], gamma [n], beta [n] -> y [..., n].
// Domain    eps >= 1e-12. If the deviations of a row from its mean are below the rounding of the
//           mean but not below sqrt(eps), the result is scaled rounding errors, which differ
//           between devices.
// Numerics  statistics in f32. The variance is biased and computed from the differences to the
//           mean.
// Gradient  LayerNormGrad, a fused operator: dx, and dgamma and dbeta summed over all rows.
// Source    Ba, Kiros, Hinton, "Layer Normalization", 2016.
#include "ops/counted.h"
#include "ops/normal.h"

namespace bowline::detail::layer_norm_op {
namespace {

Status infer(InferContext& c) {
  const Shape& x = c.in(0);
  BOWLINE_REQUIRE(x.rank() >= 1, "Input x has rank 0.");
  const float eps = c.attributes<LayerNormAttributes>().eps();
  BOWLINE_REQUIRE(eps >= 1e-12f, "Eps {} is not at least 1e-12.", eps);
  BOWLINE_TRY(check_shape("gamma", c.in(1), "a row", Shape{x.back()}));
  BOWLINE_TRY(check_shape("beta", c.in(2), "a row", Shape{x.back()}));
  return c.out(0, x);
}

Status gradient(GradientContext& c) {
  return c.din_each(c.add(Op::LayerNormGrad, {c.in(0), c.in(1), c.dout(0)}, c.attributes()));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const size_t n = c.last_axis(0);
  const auto gamma = c.in(1), beta = c.in(2);
  const auto magnitude = c.zero_magnitude(0);
  for (size_t row = 0; row < c.in(0).size(); row += n) {
    const auto x = c.in(0).subspan(row, n);
    const Normal s = normal_of(x, c.attributes<LayerNormAttributes>().eps());
    for (size_t i = 0; i < n; ++i) {
      c.out(0)[row + i] = s.of(x[i]) * gamma[i] + beta[i];
      magnitude[row + i] = s.lost(x[i]) * std::abs(gamma[i]) + std::abs(beta[i]);
    }
  }
}

// Two sums over n, then four roundings: root, division, scale, shift.
Tolerance tolerance(ToleranceContext& c) { return Tolerance::of_reduction(c.in(0).back(), 4); }

}  // namespace

extern const OpDef op_layer_norm{
    .name = "LayerNorm",
    .inputs = 3,
    .infer = infer,
    .counted = counted::rows,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::layer_norm_op
