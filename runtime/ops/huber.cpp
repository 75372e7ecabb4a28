// Huber: a loss that is quadratic near the target and linear further away.
//
//   f(d) = |d| <= delta ? d^2 / 2 : delta (|d| - delta / 2)
//   loss = reduction of f(x - target): the mean over all elements, their sum, or `none`
//
// Shapes    x and target of the same shape  ->  loss [], or with `none` the shape of x. The loss is
//           always f32.
// Numerics  accumulated in f32. The mean of no elements is 0, as in CrossEntropy without rows
//           (PyTorch: NaN).
// Gradient  HuberGrad: dx = clamp(x - target, -delta, delta) dloss, with `mean` divided by the
//           number of elements. The gradient of target is -dx.
// Source    Huber, "Robust Estimation of a Location Parameter", 1964; torch.nn.HuberLoss.
//           SmoothL1Loss(beta) is Huber with delta = beta, divided by beta.
#include "ops/losses.h"

namespace bowline::detail::huber_op {
namespace {

using Table = HuberAttributes;

Status infer(InferContext& c) {
  const float delta = c.attributes<Table>().delta();
  BOWLINE_REQUIRE(delta > 0, "Delta ({}) is not positive.", delta);
  return losses::infer<Table>(c);
}

[[maybe_unused]] losses::Point value(double x, double t, const Attributes& attributes) {
  const double delta = attributes.as<Table>().delta();
  const double d = std::abs(x - t);
  const double y = delta < d ? delta * (d - delta / 2) : d * d / 2;
  return {y, y};
}

// The difference, three more roundings (d - delta / 2 is at least half of d), the sum, the
// division.
Tolerance tolerance(ToleranceContext& c) { return Tolerance::of_reduction(c.in(0).elements(), 7); }

}  // namespace

extern const OpDef op_huber = losses::definition<value, Table>(
    "Huber", infer, losses::gradient_of_difference<Op::HuberGrad>, tolerance);

}  // namespace bowline::detail::huber_op
