// Mul: multiplication of two tensors.
//
//   y = a * b
//
// Shapes    a and b broadcast by the rules of NumPy (aligned at the last axis, size 1 repeats);
//           rank <= 8. Integers wrap around.
// Gradient  da = dy * b and db = dy * a, each summed over its broadcast axes.
// In place  on an input that has the shape of the output.
#include "ops/elementwise.h"

namespace bowline::detail::mul_op {
namespace {

Status gradient(GradientContext& c) {
  for (const int i : {0, 1}) {
    if (c.needs(i)) {
      const GradientValue d = c.add1(Op::Mul, {c.dout(0), c.in(1 - i)});
      BOWLINE_TRY(c.din(i, summed_to(c, d, c.shape(c.in(i)))));
    }
  }
  return {};
}

elementwise::Point value(double a, double b) { return {a * b, std::abs(a * b)}; }

}  // namespace

extern const OpDef op_mul = [] {
  OpDef def = elementwise::binary_definition<value>("Mul", roundings<1>, gradient, "N -> N");
  def.keeps_loss_weight = 0b11;
  return def;
}();

}  // namespace bowline::detail::mul_op
