// FusedCrossEntropy: a fusion of CrossEntropy and CrossEntropyGrad.
//
//   loss = that of CrossEntropy;  dlogits = CrossEntropyGrad with the lse of CrossEntropy
//
// Shapes    logits [..., V] with V >= 1, labels i32 [...], dloss [], or with `none` [...]  ->
//           dlogits of the shape of logits; loss [], or with `none` [...].
// Labels    as those of the two operators. With an out-of-range label, both results are undefined.
// In place  dlogits on logits.
// Gradient  none: graphs are rewritten after differentiation (graph/rewrites/losses.cpp).
// Source    CrossEntropy, CrossEntropyGrad.
#include "ops/losses.h"
#include "ops/reference.h"

namespace bowline::detail {

namespace cross_entropy_op {
extern const OpDef op_cross_entropy;
}
namespace cross_entropy_grad_op {
extern const OpDef op_cross_entropy_grad;
}

namespace fused_cross_entropy_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_TRY_ASSIGN(const Shape rows, losses::rows_of_classes(c, "logits", "labels"));
  const auto& t = c.attributes<CrossEntropyAttributes>();
  BOWLINE_TRY(losses::check_smoothing(t.label_smoothing()));
  const Shape loss = losses::reduced(t.reduction(), rows);
  BOWLINE_TRY(check_shape("dloss", c.in(2), "the loss", loss));
  return c.out_each({c.in(0), loss});
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<CrossEntropyAttributes>();
  const OracleContext::Array logits = input_of(c, 0), labels = input_of(c, 1);
  const Reference forward = reference_of(cross_entropy_op::op_cross_entropy, c.attributes(),
                                         {logits, labels}, {c.out_shape(1), c.shape(1)});
  const std::vector<double>& lse = forward.outputs[1].values;
  const Reference backward =
      reference_of(cross_entropy_grad_op::op_cross_entropy_grad, c.attributes(),
                   {logits, labels, forward.outputs[1], input_of(c, 2)}, {c.shape(0)});
  c.zero_magnitude(0);
  c.zero_magnitude(1);
  add_output(c, 0, backward, 0);
  add_output(c, 1, forward, 0);
  c.outcome.bad_indices = forward.outcome.bad_indices;
  c.outcome.undefined_outputs = c.outcome.bad_indices.empty() ? 0 : 0b11;
  // CrossEntropyGrad takes lse as exact. Here its error is a relative error of each exponential.
  const auto counted = static_cast<double>(
      std::ranges::count_if(c.in(1), [&](double label) { return label != t.ignore_index(); }));
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    const size_t row = i / c.last_axis(0);
    const double p = std::exp(c.in(0)[i] - lse[row]);
    if (c.in(1)[row] != t.ignore_index() && p > 0) {
      const double scale = losses::factor(c, 2, t.reduction(), row, counted);
      c.magnitude(0)[i] += p * forward.magnitude[1][row] * std::abs(scale);
    }
  }
}

// The sums of CrossEntropy, and the roundings of CrossEntropyGrad.
Tolerance tolerance(ToleranceContext& c) {
  return Tolerance::of_reduction(std::max(c.in(0).back(), c.in(1).elements()), 16);
}

}  // namespace

extern const OpDef op_fused_cross_entropy{
    .name = "FusedCrossEntropy",
    .inputs = 3,
    .outputs = 2,
    .is_fused = true,
    .types = "F, i32, f32 -> F, f32",
    .in_place = {{0, 0}},
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace fused_cross_entropy_op
}  // namespace bowline::detail
