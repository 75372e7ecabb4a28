// RmsNorm: divides the last axis by its root mean square, then scales.
//
//   y = x / sqrt(mean(x^2) + eps) * gamma
//
// Shapes    x [..., n], gamma [n]  ->  y [..., n].
// Domain    eps >= 1e-12. With a smaller eps, the squares of small rows would be denormal, which
//           not every device supports.
// Numerics  the mean is accumulated in f32.
// Gradient  RmsNormGrad, a fused operator: dx, and dgamma summed over all rows.
// Source    Zhang, Sennrich, "Root Mean Square Layer Normalization", 2019.
#include <cmath>

#include "ops/counted.h"
#include "ops/op.h"

namespace bowline::detail::rms_norm_op {
namespace {

Status infer(InferContext& c) {
  const Shape& x = c.in(0);
  BOWLINE_REQUIRE(x.rank() >= 1, "Input x has rank 0.");
  const float eps = c.attributes<RmsNormAttributes>().eps();
  BOWLINE_REQUIRE(eps >= 1e-12f, "Eps {} is not at least 1e-12.", eps);
  BOWLINE_TRY(check_shape("gamma", c.in(1), "a row", Shape{x.back()}));
  return c.out(0, x);
}

Status gradient(GradientContext& c) {
  return c.din_each(c.add(Op::RmsNormGrad, {c.in(0), c.in(1), c.dout(0)}, c.attributes()));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const size_t n = c.last_axis(0);
  const double eps = c.attributes<RmsNormAttributes>().eps();
  for (size_t row = 0; row < c.in(0).size(); row += n) {
    const auto x = c.in(0).subspan(row, n);
    double square = 0;
    for (const double v : x) {
      square += v * v / static_cast<double>(n);
    }
    for (size_t i = 0; i < n; ++i) {
      c.out(0)[row + i] = x[i] / std::sqrt(square + eps) * c.in(1)[i];
    }
  }
}

// One sum over n, then root, division, scale.
Tolerance tolerance(ToleranceContext& c) { return Tolerance::of_reduction(c.in(0).back(), 4); }

}  // namespace

extern const OpDef op_rms_norm{
    .name = "RmsNorm",
    .inputs = 2,
    .infer = infer,
    .counted = counted::rows,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::rms_norm_op
