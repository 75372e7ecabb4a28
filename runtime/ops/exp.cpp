// Exp: the exponential function.
//
//   y = e^x
//
// Shapes    any x  ->  y of the shape of x.
// Gradient  dx = dy y.
// In place  on x.
#include "ops/elementwise.h"

namespace bowline::detail::exp_op {
namespace {

elementwise::Point value(double x, const Attributes&) {
  const double y = std::exp(x);
  return {y, y};
}

Status gradient(GradientContext& c) { return c.din(0, c.add1(Op::Mul, {c.dout(0), c.out(0)})); }

}  // namespace

// A polynomial, and two products with powers of two.
extern const OpDef op_exp =
    elementwise::in_f32(elementwise::definition<value>("Exp", roundings<4>, gradient));

}  // namespace bowline::detail::exp_op
