// BinaryCrossEntropy: the negative log-likelihood of two classes, from logits.
//
//   loss = mean over all elements of -(target log s + (1 - target) log(1 - s)), s = 1 / (1 +
//       exp(-x)); their sum, or (`none`)
//          each of them
//
// Shapes    x and target of one shape  ->  loss [], with `none` of the shape of x. The loss is f32
//           whatever x is. Targets are
//           any numbers, as a rule in [0, 1].
// Numerics  as (1 - target) x + max(-x, 0) + log(1 + exp(-|x|)): nothing overflows. Accumulated in
//           f32. The mean of nothing is 0, as that of CrossEntropy without rows (PyTorch: NaN).
// Gradient  BinaryCrossEntropyGrad: dx = (s - target) dloss, for `mean` divided by the elements.
//           That of target is -x dloss, divided alike.
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
  const auto cast = [&](GradientValue v, DType to) {
    CastAttributesT t;
    t.to = static_cast<file::DType>(to);
    return c.dtype(v) == to ? v : c.add1(Op::Cast, {v}, Attributes::of(t));
  };
  const int64_t n = c.shape(c.in(0)).elements();
  const bool mean = c.attributes<Table>().reduction() == Reduction::mean && n > 0;
  ScaleAttributesT share;
  share.factor = mean ? -1 / static_cast<float>(n) : -1;
  const GradientValue x = cast(c.in(0), DType::f32);
  const GradientValue d = c.add1(Op::Scale, {c.dout(0)}, Attributes::of(share));
  return c.din(1, cast(c.add1(Op::Mul, {x, d}), c.dtype(c.in(1))));
}

// Of a term: three for the exponential, four for the logarithm, four around them. Then the sum and
// the quotient.
Tolerance tolerance(ToleranceContext& c) { return Tolerance::of_reduction(c.in(0).elements(), 13); }

}  // namespace

extern const OpDef op_binary_cross_entropy;
const OpDef op_binary_cross_entropy = losses::definition<value, Table>(
    "BinaryCrossEntropy", losses::infer<Table>, gradient, tolerance);

}  // namespace bowline::detail::binary_cross_entropy_op
