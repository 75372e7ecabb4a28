// HuberGrad: the gradient of Huber.
//
//   dx = clamp(x - target, -delta, delta) dloss, with `mean` divided by the number of elements
//
// Shapes    x and target of the same shape, dloss [], or with `none` the shape of x  ->  dx of the
//           shape of x.
// Gradient  none.
// In place  on x or the target.
#include "ops/losses.h"

namespace bowline::detail::huber_grad_op {
namespace {

[[maybe_unused]] losses::Point slope(double x, double t, const Attributes& attributes) {
  const double delta = attributes.as<HuberAttributes>().delta();
  const double d = x - t;
  const double y = d < -delta ? -delta : d > delta ? delta : d;
  return {y, std::abs(y)};
}

}  // namespace

extern const OpDef op_huber_grad =
    losses::gradient_definition<slope, HuberAttributes>("HuberGrad", roundings<4>);

}  // namespace bowline::detail::huber_grad_op
