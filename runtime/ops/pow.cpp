// Pow: elementwise power.
//
//   y = a^b
//
// Shapes    a and b broadcast by the rules of NumPy (aligned at the last axis, size 1 repeats);
//           rank <= 8.
// Numerics  as in C and IEEE 754: a^0 and 1^b are 1 for all a and b. A negative a with a fractional
//           b gives NaN.
// Gradient  PowGradA: da = dy b a^(b - 1), and 0 if b is 0. PowGradB: db = dy a^b log(a), and 0 if
//           a is 0 and b >= 0. Each is summed over its broadcast axes.
// In place  on an input that has the shape of the output.
#include "ops/elementwise.h"

namespace bowline::detail::pow_op {
namespace {

// The rounding of the exponent of e costs |b log a| roundings of the result, and the rounding of a
// costs |b|.
double cost(double a, double b) {
  const double t = std::abs(b * std::log(std::abs(a)));
  return 1 + std::abs(b) + (std::isfinite(t) ? t : 0);
}

elementwise::Point value(double a, double b) {
  const double y = std::pow(a, b);
  return {y, std::abs(y) * cost(a, b)};
}

elementwise::Point slope_a(double a, double b) {
  const double s = b == 0 ? 0 : b * std::pow(a, b - 1);
  return {s, std::abs(s) * cost(a, b)};
}

elementwise::Point slope_b(double a, double b) {
  const double s = a == 0 && b >= 0 ? 0 : std::pow(a, b) * std::log(a);
  return {s, std::abs(s) * cost(a, b)};
}

constexpr auto gradient = elementwise::binary_gradient<Op::PowGradA, Op::PowGradB>;

}  // namespace

// A logarithm, a product, an exponential.
extern const OpDef op_pow = elementwise::in_f32(
    elementwise::binary_definition<value>("Pow", roundings<8>, gradient, "F -> F"));
// The same, and a difference, two products and another logarithm.
extern const OpDef op_pow_grad_a =
    elementwise::binary_gradient_definition<slope_a, true>("PowGradA", roundings<14>);
extern const OpDef op_pow_grad_b =
    elementwise::binary_gradient_definition<slope_b, true>("PowGradB", roundings<14>);

}  // namespace bowline::detail::pow_op
