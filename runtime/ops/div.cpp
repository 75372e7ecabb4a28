// Div: division of two tensors.
//
//   y = a / b;  integers round towards zero
//
// Shapes    a and b broadcast by the rules of NumPy (aligned at the last axis, size 1 repeats);
//           rank <= 8.
// Numerics  integers: the most negative value divided by -1 wraps around to itself.
// Errors    index_out_of_range: an integer b is 0. The result is then 0.
// Gradient  DivGradA: da = dy / b. DivGradB: db = -dy (a / b) / b. Each is summed over its
//           broadcast axes.
// In place  on an input that has the shape of the output.
// Source    ONNX operators, Div, which does not specify division by 0; torch.div with
//           rounding_mode="trunc", which raises an error.
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

constexpr auto gradient = elementwise::binary_gradient<Op::DivGradA, Op::DivGradB>;

// The divisor of a masked mean: a scalar that depends on the batch but not on any weight.
std::optional<LossWeight> loss_weight(GradientContext& c) {
  const GradientValue divisor = c.in(1);
  const bool is_sum = is_float(c.dtype(divisor)) && c.shape(divisor).elements() == 1 &&
                      c.from_batch(1) && !c.needs(1);
  if (!is_sum) {
    return std::nullopt;
  }
  return LossWeight{reshaped(c, cast_to(c, divisor, DType::f32), Shape{})};
}

}  // namespace

// Vulkan allows a division an error of 2.5 roundings.
extern const OpDef op_div = [] {
  OpDef def =
      definition(elementwise::binary_definition<value>("Div", roundings<4>, gradient, "N -> N"));
  def.loss_weight = loss_weight;
  def.keeps_loss_weight = 0b1;
  return def;
}();
// Two divisions and a product.
extern const OpDef op_div_grad_a =
    elementwise::binary_gradient_definition<slope_a>("DivGradA", roundings<10>);
extern const OpDef op_div_grad_b =
    elementwise::binary_gradient_definition<slope_b>("DivGradB", roundings<10>);

}  // namespace bowline::detail::div_op
