// Rsqrt: the reciprocal square root.
//
//   y = 1 / sqrt(x)
//
// Shapes    any x  ->  y of the shape of x.
// Numerics  0 gives infinity; negative values give NaN.
// Gradient  RsqrtGrad: dx = -dy / (2 x sqrt(x)).
// In place  on x; the gradient on x or dy.
#include "ops/elementwise.h"

namespace bowline::detail::rsqrt_op {
namespace {

elementwise::Point value(double x, const Attributes&) {
  const double y = 1 / std::sqrt(x);
  return {y, y};
}

elementwise::Point slope(double x, const Attributes&) {
  const double s = -0.5 / (x * std::sqrt(x));
  return {s, std::abs(s)};
}

}  // namespace

// A root and a division.
extern const OpDef op_rsqrt = elementwise::definition<value, Op::RsqrtGrad>("Rsqrt", roundings<8>);
// A root, two products and a division.
extern const OpDef op_rsqrt_grad =
    elementwise::gradient_definition<slope>("RsqrtGrad", roundings<10>);

}  // namespace bowline::detail::rsqrt_op
