// MeanSquaredError: the squared difference to a target.
//
//   loss = reduction of (x - target)^2: the mean over all elements, their sum, or `none`
//
// Shapes    x and target of the same shape  ->  loss [], or with `none` the shape of x. The loss is
//           always f32.
// Numerics  accumulated in f32. The mean of no elements is 0, as in CrossEntropy without rows
//           (PyTorch: NaN).
// Gradient  MeanSquaredErrorGrad: dx = 2 (x - target) dloss, with `mean` divided by the number of
//           elements. The gradient of target is -dx.
// Source    torch.nn.MSELoss.
#include "ops/losses.h"

namespace bowline::detail::mean_squared_error_op {
namespace {

using Table = LossAttributes;

[[maybe_unused]] losses::Point value(double x, double t, const Attributes&) {
  return {(x - t) * (x - t), (x - t) * (x - t)};
}

// The difference, its square, the sum, the division.
Tolerance tolerance(ToleranceContext& c) { return Tolerance::of_reduction(c.in(0).elements(), 5); }

}  // namespace

extern const OpDef op_mean_squared_error = losses::definition<value, Table>(
    "MeanSquaredError", losses::infer<Table>,
    losses::gradient_of_difference<Op::MeanSquaredErrorGrad>, tolerance);

}  // namespace bowline::detail::mean_squared_error_op
