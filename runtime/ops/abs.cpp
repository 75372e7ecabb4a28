// Abs: the absolute value.
//
//   y = |x|
//
// Shapes    any x  ->  y of the shape of x. Integers wrap around.
// Gradient  AbsGrad: dx = dy sign(x). The slope at x = 0 is 0.
// In place  on x; the gradient on x or dy.
#include "ops/elementwise.h"

namespace bowline::detail::abs_op {
namespace {

elementwise::Point value(double x, const Attributes&) { return {std::abs(x), 0}; }

elementwise::Point slope(double x, const Attributes&) {
  const double s = x > 0 ? 1 : x < 0 ? -1 : x;
  return {s, std::abs(s)};
}

}  // namespace

extern const OpDef op_abs = elementwise::definition<value, Op::AbsGrad>("Abs", exactly, "N -> N");
extern const OpDef op_abs_grad = elementwise::gradient_definition<slope>("AbsGrad", exactly);

}  // namespace bowline::detail::abs_op
