// Softmax: exponentials along the last axis, normalized to the sum 1.
//
//   y[i] = exp(x[i] - max(x)) / sum over j of exp(x[j] - max(x))
//
// Shapes    x [..., n] of rank >= 1  ->  y of the shape of x.
// Numerics  the sum is accumulated in f32.
// Gradient  SoftmaxGrad.
#include "ops/softmax.h"

namespace bowline::detail::softmax_op {
namespace {

Status infer(InferContext& c) { return softmax::infer(c, "Softmax", "x"); }

Status gradient(GradientContext& c) {
  return c.din(0, c.add1(Op::SoftmaxGrad, {c.out(0), c.dout(0)}, c.attributes()));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const size_t n = c.last_axis(0);
  const auto magnitude = c.zero_magnitude(0);
  for (size_t row = 0; row < c.in(0).size(); row += n) {
    const auto x = c.in(0).subspan(row, n);
    const auto y = c.out(0).subspan(row, n);
    const double top = *std::max_element(x.begin(), x.end());
    double sum = 0;
    double slack = 0;  // mean distance to the maximum, because the arguments of exp are rounded
    for (size_t i = 0; i < n; ++i) {
      y[i] = std::exp(x[i] - top);
      sum += y[i];
      slack += y[i] > 0 ? y[i] * (top - x[i]) : 0;
    }
    for (size_t i = 0; i < n; ++i) {
      y[i] /= sum;
      magnitude[row + i] = y[i] > 0 ? y[i] * (1 + top - x[i] + slack / sum) : 0;
    }
  }
}

Tolerance tolerance(ToleranceContext& c) { return Tolerance::of_reduction(c.in(0).back(), 8); }

}  // namespace

extern const OpDef op_softmax{
    .name = "Softmax",
    .infer = infer,
    .counted = softmax::counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::softmax_op
