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
#include <cmath>

#include "ops/counted.h"
#include "ops/op.h"

namespace bowline::detail::layer_norm_op {
namespace {

Status infer(InferContext& c) {
  const Shape& x = c.in(0);
  BOWLINE_REQUIRE(x.rank() >= 1, "Input x has rank 0.");
  const float eps = c.attributes<LayerNormAttributes>().eps();
  BOWLINE_REQUIRE(eps >= 1e-12f, "Eps {} is not at least 1e-12.", eps);
  const Shape row{x.back()};
  BOWLINE_REQUIRE(c.in(1) == row, "Shape of gamma ({}) is not the shape of a row ({}).", c.in(1),
                  row);
  BOWLINE_REQUIRE(c.in(2) == row, "Shape of beta ({}) is not the shape of a row ({}).", c.in(2),
                  row);
  return c.out(0, x);
}

Status gradient(GradientContext& c) {
  const GradientValues d = c.add(Op::LayerNormGrad, {c.in(0), c.in(1), c.dout(0)}, c.attributes());
  for (int i = 0; i < 3; ++i) {
    BOWLINE_TRY(c.din(i, d.empty() ? GradientValue{} : d[static_cast<size_t>(i)]));
  }
  return {};
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const size_t n = c.last_axis(0);
  const double eps = c.attributes<LayerNormAttributes>().eps();
  const auto magnitude = c.zero_magnitude(0);
  for (size_t row = 0; row < c.in(0).size(); row += n) {
    const auto x = c.in(0).subspan(row, n);
    double mean = 0, size = 0, square = 0;
    for (const double v : x) {
      mean += v / static_cast<double>(n);
      size += std::abs(v) / static_cast<double>(n);
      square += v * v / static_cast<double>(n);
    }
    double var = 0;
    for (const double v : x) {
      var += (v - mean) * (v - mean) / static_cast<double>(n);
    }
    const double scale = 1 / std::sqrt(var + eps);
    for (size_t i = 0; i < n; ++i) {
      const double normal = (x[i] - mean) * scale;
      c.out(0)[row + i] = normal * c.in(1)[i] + c.in(2)[i];
      // x - mean cancels, and so does the variance under the root.
      const double lost =
          (std::abs(x[i]) + size) * scale + std::abs(normal) * (1 + 2 * std::sqrt(square) * scale);
      magnitude[row + i] = lost * std::abs(c.in(1)[i]) + std::abs(c.in(2)[i]);
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
