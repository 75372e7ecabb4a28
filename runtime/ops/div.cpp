// Div: the quotient of two tensors.
//
//   y = a / b;  of integers towards zero
//
// Shapes    a and b broadcast by the rules of numpy (aligned at the last axis, 1 stretches), rank
//           <= 8.
// Numerics  integers: the most negative number by -1 wraps around to itself.
// Errors    integers: a b of 0 gives 0 and sets the error word, as an index outside its range does.
// Gradient  DivGradA: da = dy / b. DivGradB: db = -dy (a / b) / b. Both summed over the axes that
//           were broadcast.
// In place  on an input of the shape of the output.
// Source    ONNX operators, Div, which leaves quotients by 0 open; torch.div with
//           rounding_mode="trunc", which stops at them.
#include "ops/elementwise.h"

namespace bowline::detail::div_op {
namespace {

elementwise::Point value(double a, double b) { return {a / b, std::abs(a / b)}; }

elementwise::Point slope_a(double a, double b) {
  (void)a;
  return {1 / b, std::abs(1 / b)};
}

elementwise::Point slope_b(double a, double b) { return {-(a / b) / b, std::abs(a / b / b)}; }

[[maybe_unused]] void oracle(const OracleContext& c) {
  if (is_float(c.dtype(0))) {
    return elementwise::binary_oracle<value>(c);
  }
  for (Index i(c.out_shape(0)); i.valid(); i.next()) {
    const double b = c.in(1)[i.in_broadcast(c.shape(1))];
    const double a = c.in(0)[i.in_broadcast(c.shape(0))];
    if (b == 0) {
      c.outcome.bad_indices.push_back(0);
    } else {
      c.out(0)[i.flat()] = elementwise::wrapped(std::trunc(a / b), c.dtype(0));
    }
  }
}

constexpr OpDef definition(OpDef def) {
  def.oracle = BOWLINE_ORACLE(oracle);
  return def;
}

// A driver divides to 2.5 roundings.
Tolerance tolerance(ToleranceContext&) { return Tolerance::of_roundings(4); }

// Two quotients and a product.
Tolerance gradient_tolerance(ToleranceContext&) { return Tolerance::of_roundings(10); }

constexpr auto gradient = elementwise::binary_gradient<Op::DivGradA, Op::DivGradB>;

// The sum of a masked mean: a number that the batch decides and no weight changes.
std::optional<LossWeight> loss_weight(GradientContext& c) {
  const GradientValue divisor = c.in(1);
  const bool is_sum = is_float(c.dtype(divisor)) && c.shape(divisor).elements() == 1 &&
                      c.from_batch(1) && !c.needs(1);
  if (!is_sum) {
    return std::nullopt;
  }
  CastAttributesT to;
  to.to = file::DType::f32;
  const GradientValue sum =
      c.dtype(divisor) == DType::f32 ? divisor : c.add1(Op::Cast, {divisor}, Attributes::of(to));
  return LossWeight{reshaped(c, sum, Shape{})};
}

}  // namespace

extern const OpDef op_div, op_div_grad_a, op_div_grad_b;
const OpDef op_div = [] {
  OpDef def =
      definition(elementwise::binary_definition<value>("Div", tolerance, gradient, "N -> N"));
  def.loss_weight = loss_weight;
  def.keeps_loss_weight = 0b1;
  return def;
}();
const OpDef op_div_grad_a =
    elementwise::binary_gradient_definition<slope_a>("DivGradA", gradient_tolerance);
const OpDef op_div_grad_b =
    elementwise::binary_gradient_definition<slope_b>("DivGradB", gradient_tolerance);

}  // namespace bowline::detail::div_op
