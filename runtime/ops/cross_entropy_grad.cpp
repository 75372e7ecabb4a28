// CrossEntropyGrad: the gradient of CrossEntropy, from the log-sum-exp of its rows.
//
//   dlogits[r, v] = dloss * (exp(logits[r, v] - lse[r]) - label_smoothing / V
//                            - (1 - label_smoothing) (v == labels[r]))
//   with `mean` divided by the number of counted rows
//
// Shapes    logits [..., V], labels i32 [...], lse [...], dloss [], or with `none` [...]  ->
//           dlogits of the shape of logits.
// Gradient  none.
// In place  on logits.
// Labels    rows whose label equals ignore_index get zeros. Another label outside [0, V) leaves
//           dlogits undefined.
#include <cmath>

#include "ops/losses.h"

namespace bowline::detail::cross_entropy_grad_op {
namespace {

Status infer(InferContext& c) {
  const Shape& logits = c.in(0);
  BOWLINE_REQUIRE(logits.rank() >= 1, "The logits have rank 0.");
  const Shape rows(logits.dims().first(static_cast<size_t>(logits.rank() - 1)));
  for (const int i : {1, 2}) {
    BOWLINE_TRY(check_shape(format("input {}", i), c.in(i), "the rows of the logits", rows));
  }
  const auto& t = c.attributes<CrossEntropyAttributes>();
  BOWLINE_TRY(losses::check_smoothing(t.label_smoothing()));
  BOWLINE_TRY(check_shape("dloss", c.in(3), "the loss", losses::reduced(t.reduction(), rows)));
  return c.out(0, logits);
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<CrossEntropyAttributes>();
  const size_t classes = c.last_axis(0);
  double counted = 0;
  for (const double label : c.in(1)) {
    counted += label == t.ignore_index() ? 0 : 1;
    if (label != t.ignore_index() && (label < 0 || label >= static_cast<double>(classes))) {
      c.outcome.undefined_outputs = 0b01;
      c.outcome.may_set_error = true;
    }
  }
  const double smooth = t.label_smoothing();
  const auto magnitude = c.zero_magnitude(0);
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    const size_t row = i / classes;
    const double label = c.in(1)[row];
    if (label == t.ignore_index()) {
      continue;
    }
    const double scale = losses::factor(c, 3, t.reduction(), row, counted);
    const double distance = c.in(0)[i] - c.in(2)[row];
    const double hit = (label == static_cast<double>(i % classes) ? 1 - smooth : 0) +
                       smooth / static_cast<double>(classes);
    const double p = std::exp(distance);
    c.out(0)[i] = (p - hit) * scale;
    magnitude[i] = ((p > 0 ? p * (1 + std::abs(c.in(0)[i]) + std::abs(c.in(2)[row])) : 0) + hit) *
                   std::abs(scale);
  }
}

}  // namespace

extern const OpDef op_cross_entropy_grad{
    .name = "CrossEntropyGrad",
    .inputs = 4,
    .types = "F, i32, f32, f32 -> F",
    .in_place = {{0, 0}},
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    // The argument of exp is a difference of rounded values, and p - 1 cancels.
    .tolerance = roundings<8>,
};

}  // namespace bowline::detail::cross_entropy_grad_op
