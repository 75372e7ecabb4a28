// Min: elementwise minimum.
//
//   y = b < a ? b : a
//
// Shapes    a and b broadcast by the rules of NumPy (aligned at the last axis, size 1 repeats);
//           rank <= 8.
// Numerics  NaN if a or b is NaN.
// Gradient  MinGradA and MinGradB: dy if the input is the smaller value, dy / 2 if both are equal,
//           else 0. Each is summed over its broadcast axes.
// In place  on an input that has the shape of the output.
#include "ops/elementwise.h"

namespace bowline::detail::min_op {
namespace {

elementwise::Point value(double a, double b) { return {std::isnan(b) || b < a ? b : a, 0}; }

elementwise::Point slope_a(double a, double b) { return {b < a ? 0 : a == b ? 0.5 : 1, 0}; }

elementwise::Point slope_b(double a, double b) { return {a < b ? 0 : a == b ? 0.5 : 1, 0}; }

constexpr auto gradient = elementwise::binary_gradient<Op::MinGradA, Op::MinGradB>;

}  // namespace

extern const OpDef op_min =
    elementwise::binary_definition<value>("Min", exactly, gradient, "N -> N");
extern const OpDef op_min_grad_a =
    elementwise::binary_gradient_definition<slope_a, true>("MinGradA", exactly);
extern const OpDef op_min_grad_b =
    elementwise::binary_gradient_definition<slope_b, true>("MinGradB", exactly);

}  // namespace bowline::detail::min_op
