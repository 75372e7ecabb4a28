// Sigmoid: the logistic function.
//
//   y = 1 / (1 + e^-x)
//
// Shapes    any x  ->  y of the shape of x.
// Numerics  small results keep their relative precision.
// Gradient  SigmoidGrad: dx = dy s (1 - s) with s = 1 / (1 + e^-x).
// In place  on x; the gradient on x or dy.
#include "ops/elementwise.h"

namespace bowline::detail::sigmoid_op {
namespace {

// For a negative x, the rounding of the argument costs |x| roundings of exp(x).
double cost(double x) { return 1 + (x < 0 ? -x : 0); }

elementwise::Point value(double x, const Attributes&) {
  const double y = 1 / (1 + std::exp(-x));
  return {y, y * cost(x)};
}

elementwise::Point slope(double x, const Attributes&) {
  const double s = 1 / (1 + std::exp(-x));
  const double rest = 1 / (1 + std::exp(x));
  return {s * rest, s * rest * (cost(x) + cost(-x))};
}

}  // namespace

// An exponential, a sum, a division, and one or two products.
extern const OpDef op_sigmoid =
    elementwise::definition<value, Op::SigmoidGrad>("Sigmoid", roundings<8>);
extern const OpDef op_sigmoid_grad =
    elementwise::gradient_definition<slope>("SigmoidGrad", roundings<8>);

}  // namespace bowline::detail::sigmoid_op
