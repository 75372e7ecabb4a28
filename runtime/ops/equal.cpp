// Equal: whether two numbers are the same.
//
//   y = a == b
//
// Shapes    a and b of one dtype broadcast by the rules of numpy (aligned at the last axis, 1
//           stretches), rank <= 8  ->  y bool.
// Numerics  NaN is unlike everything, itself too; 0 and -0 are equal.
// Gradient  none comes back from truth values.
#include "ops/elementwise.h"

namespace bowline::detail::equal_op {
namespace {

elementwise::Point value(double a, double b) { return {a == b ? 1.0 : 0.0, 0}; }

}  // namespace

extern const OpDef op_equal;
const OpDef op_equal = elementwise::comparison<value>("Equal", "A -> bool");

}  // namespace bowline::detail::equal_op
