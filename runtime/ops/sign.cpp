// Sign: -1, 0 or 1 by the sign of a value.
//
//   y = x > 0 ? 1 : x < 0 ? -1 : x
//
// Shapes    any x  ->  y of the shape of x. NaN stays NaN.
// Gradient  zero, the slope wherever the slope exists.
// In place  on x.
#include "ops/elementwise.h"

namespace bowline::detail::sign_op {
namespace {

elementwise::Point value(double x, const Attributes&) { return {x > 0 ? 1 : x < 0 ? -1 : x, 0}; }

constexpr auto gradient = elementwise::zero_gradient;

}  // namespace

extern const OpDef op_sign = elementwise::definition<value>("Sign", exactly, gradient, "N -> N");

}  // namespace bowline::detail::sign_op
