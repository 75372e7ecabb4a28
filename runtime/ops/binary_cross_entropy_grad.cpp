// BinaryCrossEntropyGrad: the gradient of BinaryCrossEntropy.
//
//   dx = (1 / (1 + exp(-x)) - target) dloss, with `mean` divided by the number of elements
//
// Shapes    x and target of the same shape, dloss [], or with `none` the shape of x  ->  dx of the
//           shape of x.
// Gradient  none.
// In place  on x or the target.
#include "ops/losses.h"

namespace bowline::detail::binary_cross_entropy_grad_op {
namespace {

[[maybe_unused]] losses::Point slope(double x, double t, const Attributes&) {
  const double s = 1 / (1 + std::exp(-x));
  return {s - t, s + std::abs(t)};
}

}  // namespace

// Three roundings for the exponential and three for the sigmoid; then difference, division,
// product.
extern const OpDef op_binary_cross_entropy_grad =
    losses::gradient_definition<slope, LossAttributes>("BinaryCrossEntropyGrad", roundings<9>);

}  // namespace bowline::detail::binary_cross_entropy_grad_op
