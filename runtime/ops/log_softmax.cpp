// LogSoftmax: the logarithm of Softmax over the last axis.
//
//   y[i] = x[i] - max(x) - log(sum over j of exp(x[j] - max(x)))
//
// Shapes    x [..., n] of rank >= 1  ->  y of the shape of x.
// Numerics  computed in f32, so that small probabilities keep their precision.
// Gradient  LogSoftmaxGrad.
#include "ops/softmax.h"

namespace bowline::detail::log_softmax_op {
namespace {

Status infer(InferContext& c) { return softmax::infer(c, "LogSoftmax", "x"); }

Status gradient(GradientContext& c) {
  return c.din(0, c.add1(Op::LogSoftmaxGrad, {c.out(0), c.dout(0)}, c.attributes()));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const size_t n = c.last_axis(0);
  const auto magnitude = c.zero_magnitude(0);
  for (size_t row = 0; row < c.in(0).size(); row += n) {
    const auto x = c.in(0).subspan(row, n);
    const double top = *std::max_element(x.begin(), x.end());
    double sum = 0;
    double slack = 0;  // mean distance to the maximum, because the arguments of exp are rounded
    for (size_t i = 0; i < n; ++i) {
      const double e = std::exp(x[i] - top);
      sum += e;
      slack += e > 0 ? e * (top - x[i]) : 0;
    }
    for (size_t i = 0; i < n; ++i) {
      c.out(0)[row + i] = x[i] - top - std::log(sum);
      magnitude[row + i] = top - x[i] + std::log(sum) + 1 + slack / sum;
    }
  }
}

Tolerance tolerance(ToleranceContext& c) { return Tolerance::of_reduction(c.in(0).back(), 8); }

}  // namespace

extern const OpDef op_log_softmax{
    .name = "LogSoftmax",
    .infer = infer,
    .counted = softmax::counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::log_softmax_op
