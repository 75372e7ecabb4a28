// Sub: subtraction of two tensors.
//
//   y = a - b
//
// Shapes    a and b broadcast by the rules of NumPy (aligned at the last axis, size 1 repeats);
//           rank <= 8. Integers wrap around.
// Gradient  da = dy and db = -dy, each summed over its broadcast axes.
// In place  on an input that has the shape of the output.
#include "ops/elementwise.h"

namespace bowline::detail::sub_op {
namespace {

Status gradient(GradientContext& c) {
  BOWLINE_TRY(c.din(0, summed_to(c, c.dout(0), c.shape(c.in(0)))));
  if (!c.needs(1)) {
    return {};
  }
  return c.din(1, summed_to(c, scaled(c, c.dout(0), -1), c.shape(c.in(1))));
}

elementwise::Point value(double a, double b) { return {a - b, std::abs(a - b)}; }

}  // namespace

extern const OpDef op_sub = [] {
  OpDef def = elementwise::binary_definition<value>("Sub", roundings<1>, gradient, "N -> N");
  def.keeps_loss_weight = 0b11;
  def.loss_terms = LossTerms::sum;
  return def;
}();

}  // namespace bowline::detail::sub_op
