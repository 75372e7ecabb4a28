// CrossEntropy: the negative log-likelihood of labels under the softmax of logits.
//
//   lse[r]  = log(sum over v of exp(logits[r, v]))
//   term[r] = lse[r] - (1 - label_smoothing) logits[r, labels[r]]
//             - label_smoothing * (mean over v of logits[r, v])
//   loss    = sum of term[r] over the counted rows; with `mean` divided by their number;
//             with `none` the terms, and 0 for rows that are not counted
//
// Shapes    logits [..., V] with V >= 1, labels i32 [...]  ->  loss [], or with `none` [...]; lse
//           [...]. loss and lse are always f32. The classes are the last axis (PyTorch and ONNX:
//           axis 1).
// Labels    rows whose label equals ignore_index are not counted. If no row is counted, the loss is
//           0 (PyTorch and ONNX: NaN).
// Errors    index_out_of_range: another label is outside [0, V). The loss is then undefined; lse is
//           valid.
// Numerics  accumulated in f32. Exponentials are relative to the maximum of the row.
// Gradient  CrossEntropyGrad. Labels have no gradient. The loss must not depend on lse in another
//           way.
// Source    torch.nn.CrossEntropyLoss. Label smoothing: Szegedy et al., "Rethinking the Inception
//           Architecture", 2016, section 7.
#include <algorithm>
#include <cmath>

#include "ops/losses.h"

namespace bowline::detail::cross_entropy_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_TRY_ASSIGN(const Shape rows, losses::rows_of_classes(c, "logits", "labels"));
  const auto& t = c.attributes<CrossEntropyAttributes>();
  BOWLINE_TRY(losses::check_smoothing(t.label_smoothing()));
  return c.out_each({losses::reduced(t.reduction(), rows), rows});
}

Status gradient(GradientContext& c) {
  BOWLINE_REQUIRE(!c.dout(1).valid(), "The loss depends on lse, which has no gradient.");
  return c.din(
      0, c.add1(Op::CrossEntropyGrad, {c.in(0), c.in(1), c.out(1), c.dout(0)}, c.attributes()));
}

std::optional<LossWeight> loss_weight(GradientContext& c) {
  return losses::weight_of_rows<CrossEntropyAttributes>(c, {});
}

Status counted_axes(CountedContext& c) {
  return losses::counted_rows<CrossEntropyAttributes>(c, {1});
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<CrossEntropyAttributes>();
  const size_t classes = c.last_axis(0);
  const auto lse_magnitude = c.zero_magnitude(1);
  const double smooth = t.label_smoothing();
  losses::Total all(c, t.reduction());
  for (size_t row = 0; row < c.in(1).size(); ++row) {
    const auto x = c.in(0).subspan(row * classes, classes);
    const double top = *std::max_element(x.begin(), x.end());
    double total = 0;
    double slack = 0;
    for (const double v : x) {
      total += std::exp(v - top);
      slack += v == top ? 0 : std::exp(v - top) * (top - v);
    }
    const double lse = top + std::log(total);
    c.out(1)[row] = lse;
    lse_magnitude[row] = std::abs(top) + std::log(total) + 1 + slack / total;
    const double label = c.in(1)[row];
    if (label == t.ignore_index()) {
      continue;
    }
    if (label < 0 || label >= static_cast<double>(classes)) {
      c.outcome.bad_indices.push_back(label);
      c.outcome.undefined_outputs = 0b01;
      continue;
    }
    double loss = lse - (1 - smooth) * x[static_cast<size_t>(label)];
    double magnitude = lse_magnitude[row] + (1 - smooth) * std::abs(x[static_cast<size_t>(label)]);
    for (size_t v = 0; v < classes && smooth != 0; ++v) {
      loss -= smooth / static_cast<double>(classes) * x[v];
      magnitude += smooth / static_cast<double>(classes) * std::abs(x[v]);
    }
    all.add(row, loss, magnitude, 1);
  }
  all.finish();
}

// A sum over the classes, then a sum over the rows.
Tolerance tolerance(ToleranceContext& c) {
  return Tolerance::of_reduction(std::max(c.in(0).back(), c.in(1).elements()), 8);
}

}  // namespace

extern const OpDef op_cross_entropy{
    .name = "CrossEntropy",
    .inputs = 2,
    .outputs = 2,
    .types = "F, i32 -> f32",
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .loss_weight = loss_weight,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::cross_entropy_op
