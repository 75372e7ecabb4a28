// MeanSquaredError: the squares of the differences to a target.
//
//   loss = mean over all elements of (x - target)^2, their sum, or (`none`) each of them
//
// Shapes    x and target of one shape  ->  loss [], with `none` of the shape of x. The loss is f32
//           whatever x is.
// Numerics  accumulated in f32. The mean of nothing is 0, as that of CrossEntropy without rows
//           (PyTorch: NaN).
// Gradient  MeanSquaredErrorGrad: dx = 2 (x - target) dloss, for `mean` divided by the elements.
//           That of target is -dx.
// Source    torch.nn.MSELoss.
#include "ops/losses.h"

namespace bowline::detail::mean_squared_error_op {
namespace {

using Table = LossAttributes;

[[maybe_unused]] losses::Point value(double x, double t, const Attributes&) {
  return {(x - t) * (x - t), (x - t) * (x - t)};
}

// The difference, its square, the sum, the quotient.
Tolerance tolerance(ToleranceContext& c) { return Tolerance::of_reduction(c.in(0).elements(), 5); }

}  // namespace

extern const OpDef op_mean_squared_error;
const OpDef op_mean_squared_error = losses::definition<value, Table>(
    "MeanSquaredError", losses::infer<Table>,
    losses::gradient_of_difference<Op::MeanSquaredErrorGrad>, tolerance);

}  // namespace bowline::detail::mean_squared_error_op
