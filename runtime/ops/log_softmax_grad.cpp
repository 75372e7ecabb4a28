// LogSoftmaxGrad: the gradient of LogSoftmax, from its result.
//
//   dx[i] = dy[i] - exp(y[i]) * sum over j of dy[j]
//
// Shapes    y and dy of the same shape [..., n]  ->  dx of this shape.
// Gradient  none.
#include "ops/softmax.h"

namespace bowline::detail::log_softmax_grad_op {
namespace {

Status infer(InferContext& c) { return softmax::infer(c, "LogSoftmax", "y"); }

[[maybe_unused]] void oracle(const OracleContext& c) {
  const size_t n = c.last_axis(0);
  const auto magnitude = c.zero_magnitude(0);
  for (size_t row = 0; row < c.in(0).size(); row += n) {
    double sum = 0;
    double terms = 0;
    for (size_t i = row; i < row + n; ++i) {
      sum += c.in(1)[i];
      terms += std::abs(c.in(1)[i]);
    }
    for (size_t i = row; i < row + n; ++i) {
      const double probability = std::exp(c.in(0)[i]);
      c.out(0)[i] = c.in(1)[i] - probability * sum;
      magnitude[i] = std::abs(c.in(1)[i]) + probability * terms;
    }
  }
}

// A sum, an exponential with three roundings, a product and a difference.
Tolerance tolerance(ToleranceContext& c) { return Tolerance::of_reduction(c.in(0).back(), 6); }

}  // namespace

extern const OpDef op_log_softmax_grad{
    .name = "LogSoftmaxGrad",
    .inputs = 2,
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::log_softmax_grad_op
