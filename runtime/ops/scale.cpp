// Scale: multiplies a tensor by a constant.
//
//   y = factor * x
//
// Shapes    any x  ->  y of the shape of x.
// Gradient  dx = factor * dy.
#include "ops/elementwise.h"

namespace bowline::detail::scale_op {
namespace {

Status gradient(GradientContext& c) {
  return c.din(0, c.add1(Op::Scale, {c.dout(0)}, c.attributes()));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const double factor = c.attributes<ScaleAttributes>().factor();
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    c.out(0)[i] = factor * c.in(0)[i];
  }
}

}  // namespace

extern const OpDef op_scale{
    .name = "Scale",
    .infer = elementwise::infer,
    .gradient = gradient,
    .keeps_loss_weight = 0b1,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = roundings<1>,
};

}  // namespace bowline::detail::scale_op
