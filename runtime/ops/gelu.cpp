// Gelu: x times the normal distribution function of x.
//
//   form = erf:   y = x / 2 * (1 + erf(x / sqrt(2)))
//   form = tanh:  y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
//
// Shapes    any x  ->  y of the shape of x.
// Gradient  GeluGrad.
// In place  on x.
// Source    Hendrycks, Gimpel, "Gaussian Error Linear Units", 2016.
#include <cmath>

#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext& c) { return c.out(0, c.in(0)); }

Status gradient(GradientContext& c) {
  return c.din(0, c.add1(Op::GeluGrad, {c.in(0), c.dout(0)}, c.attributes()));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const bool exact = c.attributes<GeluAttributes>().form() == GeluForm::erf;
  const double root = std::sqrt(2 / std::acos(-1.0));
  const auto magnitude = c.zero_magnitude(0);
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    const double x = c.in(0)[i];
    const double t =
        exact ? std::erf(x / std::sqrt(2.0)) : std::tanh(root * (x + 0.044715 * x * x * x));
    c.out(0)[i] = x / 2 * (1 + t);
    magnitude[i] = std::abs(x) / 2 * (1 + std::abs(t));
  }
}

// 1 + t cancels where x is negative. The distribution function costs about ten roundings of 1: two
// for the argument of its polynomial, three each for Horner's rule at that argument and for the
// exponential, two for products; then the product with x.
Tolerance tolerance(ToleranceContext&) { return Tolerance::of_roundings(12); }

}  // namespace

extern const OpDef op_gelu;
const OpDef op_gelu{
    .name = "Gelu",
    .in_place = {{0, 0}},
    .infer = infer,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline
