// RmsNormGrad: the gradient of RmsNorm.
//
//   s = 1 / sqrt(mean(x^2) + eps),  g = dy * gamma
//   dx = s * (g - x * s^2 * mean(g * x)),  dgamma = sum of dy * x * s over rows
//
// Shapes    x [..., n], gamma [n], dy [..., n]  ->  dx [..., n], dgamma [n].
// Numerics  accumulated in f32.
// Gradient  none.
#include <cmath>

#include "ops/op.h"

namespace bowline::detail::rms_norm_grad_op {
namespace {

Status infer(InferContext& c) {
  const Shape& x = c.in(0);
  BOWLINE_REQUIRE(x.rank() >= 1, "Input x has rank 0.");
  const Shape row{x.back()};
  BOWLINE_TRY(check_shape("gamma", c.in(1), "a row", row));
  BOWLINE_TRY(check_shape("dy", c.in(2), "x", x));
  return c.out_each({x, row});
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const size_t n = c.last_axis(0);
  const double eps = c.attributes<RmsNormAttributes>().eps();
  const auto gamma = c.in(1);
  const auto dx_magnitude = c.zero_magnitude(0);
  const auto dgamma_magnitude = c.zero_magnitude(1);
  for (size_t at = 0; at < c.in(0).size(); at += n) {
    const auto x = c.in(0).subspan(at, n);
    const auto dy = c.in(2).subspan(at, n);
    double square = 0, mean = 0, size = 0;
    for (size_t i = 0; i < n; ++i) {
      square += x[i] * x[i] / static_cast<double>(n);
      mean += dy[i] * gamma[i] * x[i] / static_cast<double>(n);
      size += std::abs(dy[i] * gamma[i] * x[i]) / static_cast<double>(n);
    }
    const double s = 1 / std::sqrt(square + eps);
    for (size_t i = 0; i < n; ++i) {
      c.out(0)[at + i] = s * (dy[i] * gamma[i] - x[i] * s * s * mean);
      c.out(1)[i] += dy[i] * x[i] * s;
      dx_magnitude[at + i] = s * (std::abs(dy[i] * gamma[i]) + std::abs(x[i]) * s * s * size);
      dgamma_magnitude[i] += std::abs(dy[i] * x[i]) * s;
    }
  }
}

// dx: sums over the row. dgamma: sums over the rows.
Tolerance tolerance(ToleranceContext& c) {
  return Tolerance::of_reduction(std::max(c.in(0).back(), c.in(0).rows()), 8);
}

}  // namespace

extern const OpDef op_rms_norm_grad{
    .name = "RmsNormGrad",
    .inputs = 3,
    .outputs = 2,
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::rms_norm_grad_op
