// Div: the quotient of two tensors.
//
//   y = a / b
//
// Shapes    a and b broadcast by the rules of numpy (aligned at the last axis, 1 stretches), rank <= 8.
// Gradient  DivGradA: da = dy / b. DivGradB: db = -dy (a / b) / b. Both summed over the axes that were broadcast.
// In place  on an input of the shape of the output.
#include "ops/elementwise.h"

namespace bowline {
namespace {

elementwise::Point value(double a, double b) { return {a / b, std::abs(a / b)}; }

elementwise::Point slope_a(double a, double b) {
  (void)a;
  return {1 / b, std::abs(1 / b)};
}

elementwise::Point slope_b(double a, double b) { return {-(a / b) / b, std::abs(a / b / b)}; }

// A driver divides to 2.5 roundings.
Tolerance tolerance(ToleranceContext&) { return Tolerance::of_roundings(4); }

// Two quotients and a product.
Tolerance gradient_tolerance(ToleranceContext&) { return Tolerance::of_roundings(10); }

constexpr auto gradient = elementwise::binary_gradient<Op::DivGradA, Op::DivGradB>;

}  // namespace

extern const OpDef op_div, op_div_grad_a, op_div_grad_b;
const OpDef op_div = elementwise::binary_definition<value>("Div", tolerance, gradient, "F -> F");
const OpDef op_div_grad_a =
    elementwise::binary_gradient_definition<slope_a>("DivGradA", gradient_tolerance);
const OpDef op_div_grad_b =
    elementwise::binary_gradient_definition<slope_b>("DivGradB", gradient_tolerance);

}  // namespace bowline
