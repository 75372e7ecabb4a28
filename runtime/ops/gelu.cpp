// Gelu: the Gaussian error linear unit, x times the normal distribution function of x.
//
//   form = erf:   y = x / 2 * (1 + erf(x / sqrt(2)))
//   form = tanh:  y = x / 2 * (1 + t),  t = tanh(sqrt(2 / pi) * (x + 0.044715 x^3))
//
// Shapes    any x  ->  y of the shape of x.
// Gradient  GeluGrad.
//           form = erf:   dx = dy * ((1 + erf(x / sqrt(2))) / 2 + x * exp(-x^2 / 2) / sqrt(2 pi))
//           form = tanh:  dx = dy * ((1 + t) / 2
//                               + x / 2 * (1 - t^2) * sqrt(2 / pi) * (1 + 3 * 0.044715 x^2))
// In place  on x; the gradient on x or dy.
// Source    Hendrycks, Gimpel, "Gaussian Error Linear Units", 2016.
#include "ops/elementwise.h"

namespace bowline::detail::gelu_op {
namespace {

bool is_erf(const Attributes& a) { return a.as<GeluAttributes>().form() == GeluForm::erf; }

double root() { return std::sqrt(2 / std::acos(-1.0)); }

double bend(double x, bool exact) {
  return exact ? std::erf(x / std::sqrt(2.0)) : std::tanh(root() * (x + 0.044715 * x * x * x));
}

elementwise::Point value(double x, const Attributes& a) {
  const double t = bend(x, is_erf(a));
  return {x / 2 * (1 + t), std::abs(x) / 2 * (1 + std::abs(t))};
}

elementwise::Point slope(double x, const Attributes& a) {
  const double t = bend(x, is_erf(a));
  if (is_erf(a)) {
    const double bell = x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
    return {(1 + t) / 2 + bell, (1 + std::abs(t)) / 2 + std::abs(bell) * (1 + x * x / 2)};
  }
  const double inner = x / 2 * root() * (1 + 3 * 0.044715 * x * x);
  return {(1 + t) / 2 + inner * (1 - t * t), (1 + std::abs(t)) / 2 + std::abs(inner) * (1 + t * t)};
}

}  // namespace

// 1 + t and 1 - t^2 cancel, and exp(-x^2 / 2) magnifies the rounding of its argument. The
// distribution function costs about ten roundings of 1: two for the argument of its polynomial,
// three for Horner's rule, three for the exponential, two for products. Then one product with x, or
// two for the gradient.
extern const OpDef op_gelu = elementwise::definition<value, Op::GeluGrad>("Gelu", roundings<12>);
extern const OpDef op_gelu_grad =
    elementwise::gradient_definition<slope>("GeluGrad", roundings<12>);

}  // namespace bowline::detail::gelu_op
