// Elu: the exponential linear unit.
//
//   y = x < 0 ? alpha (e^x - 1) : x
//
// Shapes    any x  ->  y of the shape of x.
// Numerics  small x keep their relative precision.
// Gradient  EluGrad: dx = x > 0 ? dy : dy alpha e^x.
// In place  on x; the gradient on x or dy.
// Source    Clevert, Unterthiner, Hochreiter, "Fast and Accurate Deep Network Learning by
//           Exponential Linear Units (ELUs)", 2016.
#include "ops/elementwise.h"

namespace bowline::detail::elu_op {
namespace {

elementwise::Point value(double x, const Attributes& a) {
  const double y = x < 0 ? static_cast<double>(a.as<EluAttributes>().alpha()) * std::expm1(x) : x;
  return {y, std::abs(y)};
}

elementwise::Point slope(double x, const Attributes& a) {
  const double s = x > 0 ? 1 : static_cast<double>(a.as<EluAttributes>().alpha()) * std::exp(x);
  return {s, std::abs(s)};
}

}  // namespace

// An exponential and one or two products.
extern const OpDef op_elu = elementwise::definition<value, Op::EluGrad>("Elu", roundings<6>);
extern const OpDef op_elu_grad = elementwise::gradient_definition<slope>("EluGrad", roundings<6>);

}  // namespace bowline::detail::elu_op
