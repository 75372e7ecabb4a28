// ReluGrad: the gradient of Relu.
//
//   dx = x > 0 ? dy : 0
//
// Shapes    x and dy of one shape  ->  dx of this shape. Where x is NaN, dx is 0.
// Gradient  none.
// In place  on x or dy.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext& c) {
  BOWLINE_REQUIRE(c.in(0) == c.in(1), "Shape of dy ({}) is not that of x ({}).", c.in(1), c.in(0));
  return c.out(0, c.in(0));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    c.out(0)[i] = c.in(0)[i] > 0 ? c.in(1)[i] : 0;
  }
}

Tolerance tolerance(ToleranceContext&) { return Tolerance::exact(); }

}  // namespace

extern const OpDef op_relu_grad;
const OpDef op_relu_grad{
    .name = "ReluGrad",
    .inputs = 2,
    .in_place = {{0, 0}, {0, 1}},
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline
