// Tanh: the hyperbolic tangent.
//
//   y = tanh(x)
//
// Shapes    any x  ->  y of the shape of x.
// Numerics  small x keep their relative precision.
// Gradient  built from operators: dx = dy - dy * y * y.
// In place  on x.
#include <cmath>

#include "ops/elementwise.h"

namespace bowline::detail::tanh_op {
namespace {

Status gradient(GradientContext& c) {
  const GradientValue dy = c.dout(0);
  const GradientValue y = c.out(0);
  const GradientValue square = c.add1(Op::Mul, {y, y});
  const GradientValue lost = c.add1(Op::Mul, {dy, square});
  return c.din(0, c.add1(Op::Sub, {dy, lost}));
}

elementwise::Point value(double x, const Attributes&) {
  const double y = std::tanh(x);
  return {y, std::abs(y)};
}

}  // namespace

extern const OpDef op_tanh = elementwise::definition<value>("Tanh", roundings<8>, gradient);

}  // namespace bowline::detail::tanh_op
