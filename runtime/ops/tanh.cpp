// Tanh: the hyperbolic tangent.
//
//   y = tanh(x)
//
// Shapes    any x  ->  y of the shape of x.
// Numerics  small x keep their relative precision.
// Gradient  built from operators: dx = dy - dy * y * y.
// In place  on x.
#include <cmath>

#include "ops/counted.h"
#include "ops/op.h"

namespace bowline::detail::tanh_op {
namespace {

Status infer(InferContext& c) { return c.out(0, c.in(0)); }

Status gradient(GradientContext& c) {
  const GradientValue dy = c.dout(0);
  const GradientValue y = c.out(0);
  const GradientValue square = c.add1(Op::Mul, {y, y});
  const GradientValue lost = c.add1(Op::Mul, {dy, square});
  return c.din(0, c.add1(Op::Sub, {dy, lost}));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    c.out(0)[i] = std::tanh(c.in(0)[i]);
  }
}

}  // namespace

extern const OpDef op_tanh{
    .name = "Tanh",
    .in_place = {{0, 0}},
    .infer = infer,
    .counted = counted::elementwise,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = roundings<8>,
};

}  // namespace bowline::detail::tanh_op
