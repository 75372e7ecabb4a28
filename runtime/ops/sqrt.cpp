// Sqrt: the square root.
//
//   y = sqrt(x)
//
// Shapes    any x  ->  y of the shape of x.
// Numerics  negative values give NaN.
// Gradient  SqrtGrad: dx = dy / (2 sqrt(x)).
// In place  on x; the gradient on x or dy.
#include "ops/elementwise.h"

namespace bowline::detail::sqrt_op {
namespace {

elementwise::Point value(double x, const Attributes&) {
  const double y = std::sqrt(x);
  return {y, y};
}

elementwise::Point slope(double x, const Attributes&) {
  const double s = 0.5 / std::sqrt(x);
  return {s, s};
}

}  // namespace

// Vulkan allows the inverse of an inverse square root, and divisions with an error of 2.5
// roundings.
extern const OpDef op_sqrt = elementwise::definition<value, Op::SqrtGrad>("Sqrt", roundings<4>);
// Root, product and division.
extern const OpDef op_sqrt_grad = elementwise::gradient_definition<slope>("SqrtGrad", roundings<8>);

}  // namespace bowline::detail::sqrt_op
