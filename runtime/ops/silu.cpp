// Silu: x times its logistic sigmoid.
//
//   y = x / (1 + exp(-x))
//
// Shapes    any x  ->  y of the shape of x.
// Gradient  SiluGrad: dx = dy * s * (1 + x * (1 - s)) with s = 1 / (1 + exp(-x)).
// In place  on x; the gradient on x or dy.
// Source    Elfwing, Uchibe, Doya, "Sigmoid-Weighted Linear Units", 2018.
#include "ops/elementwise.h"

namespace bowline::detail::silu_op {
namespace {

// For a negative x, the rounding of the argument costs |x| roundings of exp(x).
double cost(double x) { return 1 + (x < 0 ? -x : 0); }

elementwise::Point value(double x, const Attributes&) {
  const double y = x / (1 + std::exp(-x));
  return {y, std::abs(y) * cost(x)};
}

// 1 - s cancels for large x, and 1 + x * (1 - s) cancels near x = -1.28.
elementwise::Point slope(double x, const Attributes&) {
  const double s = 1 / (1 + std::exp(-x));
  return {s * (1 + x * (1 - s)), s * (1 + std::abs(x)) * cost(x)};
}

}  // namespace

extern const OpDef op_silu = elementwise::definition<value, Op::SiluGrad>("Silu", roundings<8>);
extern const OpDef op_silu_grad = elementwise::gradient_definition<slope>("SiluGrad", roundings<8>);

}  // namespace bowline::detail::silu_op
