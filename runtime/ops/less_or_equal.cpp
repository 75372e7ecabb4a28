// LessOrEqual: whether one number is not above another.
//
//   y = a <= b
//
// Shapes    a and b of one dtype broadcast by the rules of numpy (aligned at the last axis, 1
//           stretches), rank <= 8  ->  y bool.
// Numerics  false where one of them is NaN; 0 and -0 are equal.
// Gradient  none comes back from truth values.
#include "ops/elementwise.h"

namespace bowline::detail::less_or_equal_op {
namespace {

elementwise::Point value(double a, double b) { return {a <= b ? 1.0 : 0.0, 0}; }

}  // namespace

extern const OpDef op_less_or_equal;
const OpDef op_less_or_equal = elementwise::comparison<value>("LessOrEqual", "N -> bool");

}  // namespace bowline::detail::less_or_equal_op
