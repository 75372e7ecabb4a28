// Relu: cuts off what is negative.
//
//   y = x < 0 ? 0 : x
//
// Shapes    any x  ->  y of the shape of x. NaN stays NaN.
// Gradient  ReluGrad: dx = x > 0 ? dy : 0. Where x is NaN, dx is 0.
// In place  on x; the gradient on x or dy.
#include "ops/elementwise.h"

namespace bowline {
namespace {

elementwise::Point value(double x, const Attributes&) { return {x < 0 ? 0 : x, 0}; }

// As a choice: 0 times an infinite dy would be NaN.
[[maybe_unused]] void gradient_oracle(const OracleContext& c) {
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    c.out(0)[i] = c.in(0)[i] > 0 ? c.in(1)[i] : 0;
  }
}

Tolerance tolerance(ToleranceContext&) { return Tolerance::exact(); }

}  // namespace

extern const OpDef op_relu, op_relu_grad;
const OpDef op_relu = elementwise::definition<value, Op::ReluGrad>("Relu", tolerance);
const OpDef op_relu_grad{
    .name = "ReluGrad",
    .inputs = 2,
    .in_place = {{0, 0}, {0, 1}},
    .infer = elementwise::infer_gradient,
    .oracle = BOWLINE_ORACLE(gradient_oracle),
    .tolerance = tolerance,
};

}  // namespace bowline
