// SoftmaxGrad: the gradient of Softmax, from its result.
//
//   dx[i] = y[i] * (dy[i] - sum over j of y[j] * dy[j])
//
// Shapes    y and dy of the same shape [..., n]  ->  dx of this shape.
// Gradient  none.
#include "ops/softmax.h"

namespace bowline::detail::softmax_grad_op {
namespace {

Status infer(InferContext& c) { return softmax::infer(c, "Softmax", "y"); }

[[maybe_unused]] void oracle(const OracleContext& c) {
  const size_t n = c.last_axis(0);
  const auto magnitude = c.zero_magnitude(0);
  for (size_t row = 0; row < c.in(0).size(); row += n) {
    const auto y = c.in(0).subspan(row, n);
    const auto dy = c.in(1).subspan(row, n);
    double sum = 0;
    double terms = 0;
    for (size_t i = 0; i < n; ++i) {
      sum += y[i] * dy[i];
      terms += std::abs(y[i] * dy[i]);
    }
    for (size_t i = 0; i < n; ++i) {
      c.out(0)[row + i] = y[i] * (dy[i] - sum);
      magnitude[row + i] = std::abs(y[i]) * (std::abs(dy[i]) + terms);
    }
  }
}

Tolerance tolerance(ToleranceContext& c) { return Tolerance::of_reduction(c.in(0).back(), 3); }

}  // namespace

extern const OpDef op_softmax_grad{
    .name = "SoftmaxGrad",
    .inputs = 2,
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::softmax_grad_op
