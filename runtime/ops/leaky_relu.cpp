// LeakyRelu: Relu with a small slope for negative values.
//
//   y = x < 0 ? alpha x : x
//
// Shapes    any x  ->  y of the shape of x.
// Gradient  LeakyReluGrad: dx = x > 0 ? dy : alpha dy.
// In place  on x; the gradient on x or dy.
// Source    Maas, Hannun, Ng, "Rectifier Nonlinearities Improve Neural Network Acoustic Models",
//           2013.
#include "ops/elementwise.h"

namespace bowline::detail::leaky_relu_op {
namespace {

elementwise::Point value(double x, const Attributes& a) {
  const double y = x < 0 ? static_cast<double>(a.as<LeakyReluAttributes>().alpha()) * x : x;
  return {y, std::abs(y)};
}

elementwise::Point slope(double x, const Attributes& a) {
  const double s = x > 0 ? 1 : static_cast<double>(a.as<LeakyReluAttributes>().alpha());
  return {s, std::abs(s)};
}

}  // namespace

// One product.
extern const OpDef op_leaky_relu =
    elementwise::definition<value, Op::LeakyReluGrad>("LeakyRelu", roundings<1>);
extern const OpDef op_leaky_relu_grad =
    elementwise::gradient_definition<slope>("LeakyReluGrad", roundings<1>);

}  // namespace bowline::detail::leaky_relu_op
