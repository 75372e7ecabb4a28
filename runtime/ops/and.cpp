// And: logical and.
//
//   y = a and b
//
// Shapes    a and b are bool and broadcast by the rules of NumPy (aligned at the last axis, size 1
//           repeats); rank <= 8  ->  y bool.
// Gradient  none, because the inputs are bool.
// In place  on an input that has the shape of the output.
#include "ops/elementwise.h"

namespace bowline::detail::and_op {
namespace {

elementwise::Point value(double a, double b) { return {a != 0 && b != 0 ? 1.0 : 0.0, 0}; }

}  // namespace

extern const OpDef op_and =
    elementwise::binary_definition<value>("And", exactly, nullptr, "T -> T");

}  // namespace bowline::detail::and_op
