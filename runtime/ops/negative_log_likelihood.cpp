// NegativeLogLikelihood: the loss of labels under log-probabilities, with optional class weights.
//
//   loss = sum of -weight[target[r]] * log_probs[r, target[r]] over the counted rows r
//   `mean` divides by the sum of weight[target[r]] over the counted rows; `none` gives the terms,
//   and 0 for rows that are not counted
//
// Shapes    log_probs [..., C] with C >= 1, target i32 [...], optional weight [C] (default 1)  ->
//           loss [], or with `none` the shape of target. The loss is always f32. The classes are
//           the last axis (PyTorch and ONNX: axis 1).
// Targets   rows whose target equals ignore_index are not counted. If the weights add up to 0, the
//           sum is not divided, so without counted rows the loss is 0 (PyTorch and ONNX: NaN).
// Errors    index_out_of_range: another target is outside [0, C). The loss is then undefined.
// Numerics  accumulated in f32.
// Gradient  NegativeLogLikelihoodGrad. target and weight have no gradient.
// Source    torch.nn.NLLLoss; NegativeLogLikelihoodLoss of ONNX.
#include "ops/losses.h"

namespace bowline::detail::negative_log_likelihood_op {
namespace {

using Table = NegativeLogLikelihoodAttributes;

Status infer(InferContext& c) {
  BOWLINE_TRY_ASSIGN(const Shape rows, losses::rows_of_classes(c, "log-probabilities", "target"));
  if (c.inputs() == 3) {
    BOWLINE_TRY(check_shape("weight", c.in(2), "the classes", Shape{c.in(0).back()}));
  }
  return c.out(0, losses::reduced(c.attributes<Table>().reduction(), rows));
}

Status gradient(GradientContext& c) {
  BOWLINE_REQUIRE(c.inputs() == 2 || !c.needs(2),
                  "The loss depends on the class weights, which have no gradient.");
  GradientValues inputs = {c.in(0), c.in(1), c.dout(0)};
  if (c.inputs() == 3) {
    inputs.push_back(c.in(2));
  }
  return c.din(0, c.add1(Op::NegativeLogLikelihoodGrad, inputs, c.attributes()));
}

std::optional<LossWeight> loss_weight(GradientContext& c) {
  return losses::weight_of_rows<Table>(c, c.inputs() == 3 ? c.in(2) : GradientValue{});
}

Status counted_axes(CountedContext& c) {
  if (c.inputs() == 3) {
    BOWLINE_TRY(counted::none(c, 2, "the number of classes must be static"));
  }
  return losses::counted_rows<Table>(c, {});
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<Table>();
  const size_t classes = c.last_axis(0);
  losses::Total total(c, t.reduction());
  for (size_t row = 0; row < c.in(1).size(); ++row) {
    const double label = c.in(1)[row];
    if (label == t.ignore_index()) {
      continue;
    }
    if (label < 0 || label >= static_cast<double>(classes)) {
      c.outcome.bad_indices.push_back(label);
      c.outcome.undefined_outputs = 0b1;
      continue;
    }
    const double weight = c.inputs() == 3 ? c.in(2)[static_cast<size_t>(label)] : 1;
    const double loss = -weight * c.in(0)[row * classes + static_cast<size_t>(label)];
    total.add(row, loss, std::abs(loss), weight);
  }
  total.finish();
}

// The sums of the losses and of the weights, the product, the division.
Tolerance tolerance(ToleranceContext& c) {
  const double sum = Tolerance::of_reduction(c.in(1).elements(), 0).roundings;
  return Tolerance::of_roundings(2 * sum + 3);
}

}  // namespace

extern const OpDef op_negative_log_likelihood{
    .name = "NegativeLogLikelihood",
    .inputs = 2,
    .optional_inputs = 1,
    .types = "F, i32, F -> f32",
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .loss_weight = loss_weight,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::negative_log_likelihood_op
