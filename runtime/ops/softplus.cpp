// Softplus: a smooth approximation of Relu.
//
//   y = log(1 + exp(x))
//
// Shapes    any x  ->  y of the shape of x.
// Numerics  computed as max(x, 0) + log1p(exp(-|x|)), which never overflows. Small results keep
//           their relative precision.
// Gradient  SoftplusGrad: dx = dy / (1 + exp(-x)).
// In place  on x; the gradient on x or dy.
// Source    Dugas et al., "Incorporating Second-Order Functional Knowledge for Better Option
//           Pricing", 2001.
#include "ops/elementwise.h"

namespace bowline::detail::softplus_op {
namespace {

elementwise::Point value(double x, const Attributes&) {
  const double y = (x < 0 ? 0 : x) + std::log1p(std::exp(-std::abs(x)));
  return {y, std::abs(y)};
}

elementwise::Point slope(double x, const Attributes&) {
  const double s = 1 / (1 + std::exp(-x));
  return {s, s};
}

}  // namespace

// Three roundings for the exponential, four for the logarithm or the division, one for the sum or
// product.
extern const OpDef op_softplus =
    elementwise::definition<value, Op::SoftplusGrad>("Softplus", roundings<8>);
extern const OpDef op_softplus_grad =
    elementwise::gradient_definition<slope>("SoftplusGrad", roundings<8>);

}  // namespace bowline::detail::softplus_op
