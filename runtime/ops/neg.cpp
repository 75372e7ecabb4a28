// Neg: negation.
//
//   y = -x
//
// Shapes    any x  ->  y of the shape of x. Integers wrap around.
// Gradient  Neg of dy.
// In place  on x.
#include "ops/elementwise.h"

namespace bowline::detail::neg_op {
namespace {

elementwise::Point value(double x, const Attributes&) { return {-x, 0}; }

Status gradient(GradientContext& c) { return c.din(0, c.add1(Op::Neg, {c.dout(0)})); }

}  // namespace

extern const OpDef op_neg = [] {
  OpDef def = elementwise::definition<value>("Neg", exactly, gradient, "N -> N");
  def.keeps_loss_weight = 0b1;
  return def;
}();

}  // namespace bowline::detail::neg_op
