// MeanSquaredErrorGrad: the gradient of MeanSquaredError.
//
//   dx = 2 (x - target) dloss, with `mean` divided by the number of elements
//
// Shapes    x and target of the same shape, dloss [], or with `none` the shape of x  ->  dx of the
//           shape of x.
// Gradient  none.
// In place  on x or the target.
#include "ops/losses.h"

namespace bowline::detail::mean_squared_error_grad_op {
namespace {

[[maybe_unused]] losses::Point slope(double x, double t, const Attributes&) {
  return {2 * (x - t), 2 * std::abs(x - t)};
}

}  // namespace

extern const OpDef op_mean_squared_error_grad =
    losses::gradient_definition<slope, LossAttributes>("MeanSquaredErrorGrad", roundings<4>);

}  // namespace bowline::detail::mean_squared_error_grad_op
