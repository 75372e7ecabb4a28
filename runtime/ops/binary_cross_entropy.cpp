// BinaryCrossEntropy: the negative log-likelihood of two classes, from logits.
//
//   loss = reduction of -(target log s + (1 - target) log(1 - s)), s = 1 / (1 + exp(-x))
//   reduction: the mean over all elements, their sum, or `none` (one loss per element)
//
// Shapes    x and target of the same shape  ->  loss [], or with `none` the shape of x. The loss is
//           always f32. Targets can have any value; usually they are in [0, 1].
// Numerics  computed as (1 - target) x + max(-x, 0) + log(1 + exp(-|x|)), which never overflows.
//           Accumulated in f32. The mean of no elements is 0, as in CrossEntropy without rows
//           (PyTorch: NaN).
// Gradient  BinaryCrossEntropyGrad: dx = (s - target) dloss. The gradient of target is -x dloss.
//           With `mean`, both are divided by the number of elements.
// Source    torch.nn.BCEWithLogitsLoss.
#include "ops/losses.h"

namespace bowline::detail::binary_cross_entropy_op {
namespace {

using Table = LossAttributes;

[[maybe_unused]] losses::Point value(double x, double t, const Attributes&) {
  const double soft = std::max(-x, 0.0) + std::log1p(std::exp(-std::abs(x)));
  return {(1 - t) * x + soft, std::abs((1 - t) * x) + soft};
}

Status gradient(GradientContext& c) {
  BOWLINE_TRY(
      c.din(0, c.add1(Op::BinaryCrossEntropyGrad, {c.in(0), c.in(1), c.dout(0)}, c.attributes())));
  if (!c.needs(1)) {
    return {};
  }
  const int64_t n = c.shape(c.in(0)).elements();
  const bool mean = c.attributes<Table>().reduction() == Reduction::mean && n > 0;
  const GradientValue x = cast_to(c, c.in(0), DType::f32);
  const GradientValue d = scaled(c, c.dout(0), mean ? -1 / static_cast<float>(n) : -1);
  return c.din(1, cast_to(c, c.add1(Op::Mul, {x, d}), c.dtype(c.in(1))));
}

// Per term: three roundings for the exponential, four for the logarithm, four for the rest. Then
// the sum and the division.
Tolerance tolerance(ToleranceContext& c) { return Tolerance::of_reduction(c.in(0).elements(), 13); }

}  // namespace

extern const OpDef op_binary_cross_entropy = losses::definition<value, Table>(
    "BinaryCrossEntropy", losses::infer<Table>, gradient, tolerance);

}  // namespace bowline::detail::binary_cross_entropy_op
