// Relu: cuts off what is negative.
//
//   y = x < 0 ? 0 : x
//
// Shapes    any x  ->  y of the shape of x. NaN stays NaN.
// Gradient  ReluGrad.
// In place  on x.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext& c) { return c.out(0, c.in(0)); }

Status gradient(GradientContext& c) { return c.din(0, c.add1(Op::ReluGrad, {c.in(0), c.dout(0)})); }

[[maybe_unused]] void oracle(const OracleContext& c) {
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    const double x = c.in(0)[i];
    c.out(0)[i] = x < 0 ? 0 : x;
  }
}

Tolerance tolerance(ToleranceContext&) { return Tolerance::exact(); }

}  // namespace

extern const OpDef op_relu;
const OpDef op_relu{
    .name = "Relu",
    .in_place = {{0, 0}},
    .infer = infer,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline
