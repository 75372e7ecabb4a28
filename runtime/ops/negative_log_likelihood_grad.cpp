// NegativeLogLikelihoodGrad: the gradient of NegativeLogLikelihood.
//
//   dlog_probs[r, v] = (v == target[r] ? -weight[v] : 0) * dloss
//   with `mean` divided by the sum of weight[target[r]] over the counted rows
//
// Shapes    log_probs [..., C], of which only the shape is used; target i32 [...]; dloss [], or
//           with `none` the shape of target; optional weight [C]  ->  dlog_probs [..., C].
// Gradient  none.
// In place  on log_probs.
// Targets   rows whose target equals ignore_index get zeros. Another target outside [0, C) leaves
//           dlog_probs undefined.
#include "ops/losses.h"

namespace bowline::detail::negative_log_likelihood_grad_op {
namespace {

using Table = NegativeLogLikelihoodAttributes;

Status infer(InferContext& c) {
  const Shape& x = c.in(0);
  BOWLINE_REQUIRE(x.rank() >= 1, "The log-probabilities have rank 0.");
  const Shape rows(x.dims().first(static_cast<size_t>(x.rank() - 1)));
  BOWLINE_TRY(check_shape("target", c.in(1), "the rows of the log-probabilities", rows));
  const Shape loss = losses::reduced(c.attributes<Table>().reduction(), rows);
  BOWLINE_TRY(check_shape("dloss", c.in(2), "the loss", loss));
  if (c.inputs() == 4) {
    BOWLINE_TRY(check_shape("weight", c.in(3), "the classes", Shape{x.back()}));
  }
  return c.out(0, x);
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<Table>();
  const size_t classes = c.last_axis(0);
  const auto weight = [&](double label) {
    return c.inputs() == 4 ? c.in(3)[static_cast<size_t>(label)] : 1;
  };
  double sum = 0;
  for (const double label : c.in(1)) {
    if (label != t.ignore_index() && (label < 0 || label >= static_cast<double>(classes))) {
      c.outcome.undefined_outputs = 0b1;
      c.outcome.may_set_error = true;
      return;
    }
    sum += label == t.ignore_index() ? 0 : weight(label);
  }
  for (size_t row = 0; row < c.in(1).size(); ++row) {
    const double label = c.in(1)[row];
    if (label != t.ignore_index()) {
      c.out(0)[row * classes + static_cast<size_t>(label)] =
          -weight(label) * losses::factor(c, 2, t.reduction(), row, sum);
    }
  }
}

// The sum of the weights, the division, the product.
Tolerance tolerance(ToleranceContext& c) { return Tolerance::of_reduction(c.in(1).elements(), 3); }

}  // namespace

extern const OpDef op_negative_log_likelihood_grad{
    .name = "NegativeLogLikelihoodGrad",
    .inputs = 3,
    .optional_inputs = 1,
    .types = "F, i32, f32, F -> F",
    .in_place = {{0, 0}},
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::negative_log_likelihood_grad_op
