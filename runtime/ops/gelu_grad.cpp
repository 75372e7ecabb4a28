// GeluGrad: the gradient of Gelu.
//
//   form = erf:   dx = dy * ((1 + erf(x / sqrt(2))) / 2 + x * exp(-x^2 / 2) / sqrt(2 pi))
//   form = tanh:  dx = dy * ((1 + t) / 2 + x / 2 * (1 - t^2) * sqrt(2 / pi) * (1 + 3 * 0.044715 x^2))
//                 with t = tanh(sqrt(2 / pi) * (x + 0.044715 x^3))
//
// Shapes    x and dy of one shape  ->  dx of this shape.
// Gradient  none.
// In place  on x or dy.
#include <cmath>

#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext& c) {
  BOWLINE_REQUIRE(c.in(0) == c.in(1), "Shape of dy ({}) is not that of x ({}).", c.in(1), c.in(0));
  return c.out(0, c.in(0));
}

struct Slope {
  double value;
  double magnitude;
};

[[maybe_unused]] Slope erf_slope(double x) {
  const double t = std::erf(x / std::sqrt(2.0));
  const double bell = x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
  return {(1 + t) / 2 + bell, (1 + std::abs(t)) / 2 + std::abs(bell) * (1 + x * x / 2)};
}

[[maybe_unused]] Slope tanh_slope(double x) {
  const double root = std::sqrt(2 / std::acos(-1.0));
  const double t = std::tanh(root * (x + 0.044715 * x * x * x));
  const double inner = x / 2 * root * (1 + 3 * 0.044715 * x * x);
  return {(1 + t) / 2 + inner * (1 - t * t), (1 + std::abs(t)) / 2 + std::abs(inner) * (1 + t * t)};
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const bool exact = c.attributes<GeluAttributes>().form() == GeluForm::erf;
  const auto magnitude = c.zero_magnitude(0);
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    const Slope slope = exact ? erf_slope(c.in(0)[i]) : tanh_slope(c.in(0)[i]);
    c.out(0)[i] = c.in(1)[i] * slope.value;
    magnitude[i] = std::abs(c.in(1)[i]) * slope.magnitude;
  }
}

// 1 + t and 1 - t^2 cancel; exp(-x^2 / 2) pays for the rounding of its argument. Ten roundings for
// the distribution function as in Gelu, two for the products.
Tolerance tolerance(ToleranceContext&) { return Tolerance::of_roundings(12); }

}  // namespace

extern const OpDef op_gelu_grad;
const OpDef op_gelu_grad{
    .name = "GeluGrad",
    .inputs = 2,
    .in_place = {{0, 0}, {0, 1}},
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline
