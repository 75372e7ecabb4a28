// Relu: replaces negative values by 0.
//
//   y = x < 0 ? 0 : x
//
// Shapes    any x  ->  y of the shape of x. NaN stays NaN.
// Gradient  ReluGrad: dx = x > 0 ? dy : 0. If x is NaN, dx is 0.
// In place  on x; the gradient on x or dy.
#include "ops/elementwise.h"

namespace bowline::detail::relu_op {
namespace {

elementwise::Point value(double x, const Attributes&) { return {x < 0 ? 0 : x, 0}; }

elementwise::Point slope(double x, const Attributes&) { return {x > 0 ? 1.0 : 0.0, 0}; }

}  // namespace

extern const OpDef op_relu = elementwise::definition<value, Op::ReluGrad>("Relu", exactly);
extern const OpDef op_relu_grad =
    elementwise::gradient_definition<slope, true>("ReluGrad", exactly);

}  // namespace bowline::detail::relu_op
