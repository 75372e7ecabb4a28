// Erf: the error function.
//
//   y = 2 / sqrt(pi) (integral of e^(-t^2) from 0 to x)
//
// Shapes    any x  ->  y of the shape of x.
// Numerics  small x keep their relative precision.
// Gradient  ErfGrad: dx = dy 2 / sqrt(pi) e^(-x^2).
// In place  on x; the gradient on x or dy.
#include "ops/elementwise.h"

namespace bowline::detail::erf_op {
namespace {

elementwise::Point value(double x, const Attributes&) {
  const double y = std::erf(x);
  return {y, std::abs(y)};
}

elementwise::Point slope(double x, const Attributes&) {
  const double s = 2 / std::sqrt(std::acos(-1.0)) * std::exp(-x * x);
  return {s, s * (1 + x * x)};
}

}  // namespace

// Near 0, a polynomial by Horner's rule and two products. Elsewhere, an exponential of a product.
extern const OpDef op_erf = elementwise::definition<value, Op::ErfGrad>("Erf", roundings<8>);
// The rounding of x^2 costs x^2 roundings of the exponential. Then two products.
extern const OpDef op_erf_grad = elementwise::gradient_definition<slope>("ErfGrad", roundings<8>);

}  // namespace bowline::detail::erf_op
