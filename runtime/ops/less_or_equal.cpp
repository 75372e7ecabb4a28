// LessOrEqual: elementwise comparison.
//
//   y = a <= b
//
// Shapes    a and b have the same dtype and broadcast by the rules of NumPy (aligned at the last
//           axis, size 1 repeats); rank <= 8  ->  y bool.
// Numerics  false if a or b is NaN. 0 and -0 are equal.
// Gradient  none, because the output is bool.
#include "ops/elementwise.h"

namespace bowline::detail::less_or_equal_op {
namespace {

elementwise::Point value(double a, double b) { return {a <= b ? 1.0 : 0.0, 0}; }

}  // namespace

extern const OpDef op_less_or_equal = elementwise::comparison<value>("LessOrEqual", "N -> bool");

}  // namespace bowline::detail::less_or_equal_op
