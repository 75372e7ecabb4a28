// Or: whether one of them is true.
//
//   y = a or b
//
// Shapes    a and b bool broadcast by the rules of numpy (aligned at the last axis, 1 stretches),
//           rank <= 8  ->  y bool.
// Gradient  none comes back from truth values.
// In place  on an input of the shape of the output.
#include "ops/elementwise.h"

namespace bowline::detail::or_op {
namespace {

elementwise::Point value(double a, double b) { return {a != 0 || b != 0 ? 1.0 : 0.0, 0}; }

}  // namespace

extern const OpDef op_or;
const OpDef op_or =
    elementwise::binary_definition<value>("Or", elementwise::exactly, nullptr, "T -> T");

}  // namespace bowline::detail::or_op
