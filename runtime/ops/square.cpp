// Square: the square.
//
//   y = x x
//
// Shapes    any x  ->  y of the shape of x. Integers wrap around.
// Gradient  SquareGrad: dx = 2 x dy.
// In place  on x; the gradient on x or dy.
#include "ops/elementwise.h"

namespace bowline::detail::square_op {
namespace {

elementwise::Point value(double x, const Attributes&) { return {x * x, x * x}; }

elementwise::Point slope(double x, const Attributes&) { return {2 * x, 2 * std::abs(x)}; }

}  // namespace

// One product; the gradient has one more.
extern const OpDef op_square =
    elementwise::definition<value, Op::SquareGrad>("Square", roundings<2>, "N -> N");
extern const OpDef op_square_grad =
    elementwise::gradient_definition<slope>("SquareGrad", roundings<2>);

}  // namespace bowline::detail::square_op
