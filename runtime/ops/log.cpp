// Log: the natural logarithm.
//
//   y = log(x)
//
// Shapes    any x  ->  y of the shape of x.
// Numerics  log(0) is -inf; negative values give NaN. Near 1 the relative precision is kept.
// Gradient  dx = dy / x.
// In place  on x.
#include "ops/elementwise.h"

namespace bowline::detail::log_op {
namespace {

elementwise::Point value(double x, const Attributes&) {
  const double y = std::log(x);
  return {y, std::abs(y)};
}

Status gradient(GradientContext& c) { return c.din(0, c.add1(Op::Div, {c.dout(0), c.in(0)})); }

}  // namespace

// A polynomial and two sums.
extern const OpDef op_log =
    elementwise::in_f32(elementwise::definition<value>("Log", roundings<4>, gradient));

}  // namespace bowline::detail::log_op
