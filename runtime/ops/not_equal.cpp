// NotEqual: elementwise inequality. For bool, it is the exclusive or.
//
//   y = a != b
//
// Shapes    a and b have the same dtype and broadcast by the rules of NumPy (aligned at the last
//           axis, size 1 repeats); rank <= 8  ->  y bool.
// Numerics  NaN is not equal to anything, not even to NaN. 0 and -0 are equal.
// Gradient  none, because the output is bool.
#include "ops/elementwise.h"

namespace bowline::detail::not_equal_op {
namespace {

elementwise::Point value(double a, double b) { return {a != b ? 1.0 : 0.0, 0}; }

}  // namespace

extern const OpDef op_not_equal = elementwise::comparison<value>("NotEqual", "A -> bool");

}  // namespace bowline::detail::not_equal_op
