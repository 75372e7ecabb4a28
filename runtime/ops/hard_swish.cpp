// HardSwish: a piecewise approximation of Silu.
//
//   y = x min(max(x / 6 + 1 / 2, 0), 1)
//
// Shapes    any x  ->  y of the shape of x.
// Gradient  HardSwishGrad: dx = dy (x / 3 + 1 / 2) for -3 < x < 3, dy above, and 0 below. NaN gives
//           0.
// In place  on x; the gradient on x or dy.
// Source    Howard et al., "Searching for MobileNetV3", 2019.
#include "ops/elementwise.h"

namespace bowline::detail::hard_swish_op {
namespace {

elementwise::Point value(double x, const Attributes&) {
  const double gate = std::min(std::max(x / 6 + 0.5, 0.0), 1.0);
  return {x * (std::isnan(x) ? x : gate), std::abs(x) * (std::abs(x) / 6 + 0.5)};
}

elementwise::Point slope(double x, const Attributes&) {
  if (!(x > -3)) {
    return {0, 0};
  }
  return x < 3 ? elementwise::Point{x / 3 + 0.5, std::abs(x) / 3 + 0.5} : elementwise::Point{1, 1};
}

}  // namespace

// x / 6 + 1 / 2 cancels below 0. A rounded constant, two products and a sum.
extern const OpDef op_hard_swish =
    elementwise::definition<value, Op::HardSwishGrad>("HardSwish", roundings<4>);
extern const OpDef op_hard_swish_grad =
    elementwise::gradient_definition<slope, true>("HardSwishGrad", roundings<4>);

}  // namespace bowline::detail::hard_swish_op
