// Huber: a loss that is a square near the target and grows linearly further away.
//
//   f(d) = |d| <= delta ? d^2 / 2 : delta (|d| - delta / 2)
//   loss = mean over all elements of f(x - target), their sum, or (`none`) each of them
//
// Shapes    x and target of one shape  ->  loss [], with `none` of the shape of x. The loss is f32
//           whatever x is.
// Numerics  accumulated in f32. The mean of nothing is 0, as that of CrossEntropy without rows
//           (PyTorch: NaN).
// Gradient  HuberGrad: dx = clamp(x - target, -delta, delta) dloss, for `mean` divided by the
//           elements. That of target is -dx.
// Source    Huber, "Robust Estimation of a Location Parameter", 1964, as torch.nn.HuberLoss;
//           SmoothL1Loss with beta is Huber with delta = beta, divided by beta.
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

// The difference, three more (d - delta / 2 is at least half of d), the sum, the quotient.
Tolerance tolerance(ToleranceContext& c) { return Tolerance::of_reduction(c.in(0).elements(), 7); }

}  // namespace

extern const OpDef op_huber;
const OpDef op_huber = losses::definition<value, Table>(
    "Huber", infer, losses::gradient_of_difference<Op::HuberGrad>, tolerance);

}  // namespace bowline::detail::huber_op
