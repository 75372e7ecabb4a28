// Sin: the sine.
//
//   y = sin(x), x in radians
//
// Shapes    any x  ->  y of the shape of x.
// Numerics  accurate for every finite x, however large. An infinite x gives NaN.
// Gradient  SinGrad: dx = dy cos(x).
// In place  on x; the gradient on x or dy.
#include "ops/elementwise.h"

namespace bowline::detail::sin_op {
namespace {

elementwise::Point value(double x, const Attributes&) {
  const double y = std::sin(x);
  return {y, std::abs(x) < 0.5 ? std::abs(y) : 1};
}

elementwise::Point slope(double x, const Attributes&) { return {std::cos(x), 1}; }

}  // namespace

// The range reduction cancels, so the error is relative to 1, not to the result. Below 1 no
// reduction is needed.
extern const OpDef op_sin = elementwise::definition<value, Op::SinGrad>("Sin", roundings<6>);
extern const OpDef op_sin_grad = elementwise::gradient_definition<slope>("SinGrad", roundings<6>);

}  // namespace bowline::detail::sin_op
