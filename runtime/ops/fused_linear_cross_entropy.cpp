// FusedLinearCrossEntropy: a fusion of Linear, CrossEntropy and their gradients. A kernel computes
// the logits of some rows at a time, so those of all rows never exist together.
//
//   logits = x w^T;  loss = that of CrossEntropy;  dlogits = that of CrossEntropyGrad
//   dx = dlogits w;  dw = dlogits^T x
//
// Shapes    x [..., K], w [V, K] with V >= 1, labels i32 with one element per row of x, dloss [],
//           or with `none` of the shape of labels  ->  dx [rows, K]; loss [], or with `none` of the
//           shape of labels; unless `frozen` is set, dw [V, K], always f32.
// Labels    as those of CrossEntropy. With an out-of-range label, all results are undefined.
// Numerics  logits and dlogits are rounded to the dtype of x. Sums are f32.
// Gradient  none: graphs are rewritten after differentiation (graph/rewrites/losses.cpp).
// Source    Linear, CrossEntropy, CrossEntropyGrad. Computing by chunks of rows: Hsu et al., "Liger
//           Kernel: Efficient Triton Kernels for LLM Training", 2024, section 3.2.
#include "ops/losses.h"
#include "ops/reference.h"

namespace bowline::detail {

namespace linear_op {
extern const OpDef op_linear;
}
namespace cross_entropy_op {
extern const OpDef op_cross_entropy;
}
namespace cross_entropy_grad_op {
extern const OpDef op_cross_entropy_grad;
}

namespace fused_linear_cross_entropy_op {
namespace {

int count_outputs(const Attributes& attributes) {
  return attributes.as<FusedLinearCrossEntropyAttributes>().frozen() ? 2 : 3;
}

Status infer(InferContext& c) {
  const Shape &x = c.in(0), &w = c.in(1), &labels = c.in(2);
  const auto& t = c.attributes<FusedLinearCrossEntropyAttributes>();
  BOWLINE_REQUIRE(x.rank() >= 1, "Input x has rank 0.");
  BOWLINE_REQUIRE(w.rank() == 2, "The weight has rank {}, not 2.", w.rank());
  BOWLINE_REQUIRE(w[1] == x.back(), "The weight {} takes rows of {}, x has rows of {}.", w, w[1],
                  x.back());
  BOWLINE_REQUIRE(w[0] >= 1, "The logits have no classes.");
  BOWLINE_REQUIRE(labels.elements() == x.rows(), "There are {} labels for {} rows.",
                  labels.elements(), x.rows());
  BOWLINE_TRY(losses::check_smoothing(t.label_smoothing()));
  const Shape loss = losses::reduced(t.reduction(), labels);
  BOWLINE_TRY(check_shape("dloss", c.in(3), "the loss", loss));
  BOWLINE_TRY(t.frozen() ? Status() : c.out(2, w));
  BOWLINE_TRY(c.out(1, loss));
  return c.out(0, Shape{x.rows(), x.back()});
}

[[maybe_unused]] Attributes of_cross_entropy(const FusedLinearCrossEntropyAttributes& t) {
  CrossEntropyAttributesT out;
  out.ignore_index = t.ignore_index();
  out.reduction = t.reduction();
  out.label_smoothing = t.label_smoothing();
  return Attributes::of(out);
}

// A first-order bound: how errors of the logits, in units of their magnitude, reach the results.
[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<FusedLinearCrossEntropyAttributes>();
  const auto rows = static_cast<size_t>(c.shape(0).rows());
  const auto classes = static_cast<size_t>(c.shape(1)[0]), k = static_cast<size_t>(c.shape(1)[1]);
  const Shape all{c.shape(0).rows(), c.shape(1)[0]};
  const OracleContext::Array labels = input_of(c, 2);
  const Reference logits =
      reference_of(linear_op::op_linear, Attributes::of(file::NoAttributesT{}),
                   {{Shape{all[0], c.shape(1)[1]}, input_of(c, 0).values}, input_of(c, 1)}, {all});
  const OracleContext::Array& x = logits.outputs[0];
  const auto lost = [&](size_t i) {
    return logits.magnitude[0].empty() ? 0 : logits.magnitude[0][i];
  };
  // The operator takes one label per row, of any shape.
  const OracleContext::Array rows_of_labels{Shape{all[0]}, labels.values};
  const bool is_each = t.reduction() == Reduction::none;
  const OracleContext::Array dloss{is_each ? Shape{all[0]} : Shape{}, input_of(c, 3).values};
  const Attributes attributes = of_cross_entropy(t);
  const Reference forward = reference_of(cross_entropy_op::op_cross_entropy, attributes,
                                         {x, rows_of_labels}, {dloss.shape, Shape{all[0]}});
  const OracleContext::Array& lse = forward.outputs[1];
  const Reference backward = reference_of(cross_entropy_grad_op::op_cross_entropy_grad, attributes,
                                          {x, rows_of_labels, lse, dloss}, {all});
  for (int output = 0; output < count_outputs(c.attributes()); ++output) {
    c.zero_magnitude(output);
  }
  add_output(c, 1, forward, 0);
  c.outcome.bad_indices = forward.outcome.bad_indices;
  c.outcome.undefined_outputs = c.outcome.bad_indices.empty() ? 0 : t.frozen() ? 0b11 : 0b111;
  // Below it, rounding to f16 errs as it does for this number.
  const double least = c.dtype(0) == DType::f16 ? 0x1p-14 : 0;
  const auto counted = static_cast<double>(
      std::ranges::count_if(labels.values, [&](double l) { return l != t.ignore_index(); }));
  for (size_t row = 0; row < rows; ++row) {
    const double label = labels.values[row];
    if (label == t.ignore_index()) {
      continue;
    }
    double of_lse = forward.magnitude[1][row];
    double of_loss = 0;
    for (size_t v = 0; v < classes; ++v) {
      const size_t at = row * classes + v;
      of_lse += std::exp(x.values[at] - lse.values[row]) * lost(at);
      of_loss += lost(at) * t.label_smoothing() / static_cast<double>(classes);
      of_loss += static_cast<double>(v) == label ? lost(at) * (1 - t.label_smoothing()) : 0;
    }
    c.magnitude(1)[is_each ? row : 0] +=
        (of_lse + of_loss) / (t.reduction() == Reduction::mean ? counted : 1);
    const double scale = std::abs(losses::factor(c, 3, t.reduction(), row, counted));
    for (size_t v = 0; v < classes; ++v) {
      const size_t at = row * classes + v;
      const double p = std::exp(x.values[at] - lse.values[row]);
      const double magnitude =
          std::max(least, backward.magnitude[0][at] + p * (lost(at) + of_lse) * scale);
      for (size_t i = 0; i < k; ++i) {
        const double weight = c.in(1)[v * k + i], in = c.in(0)[row * k + i];
        c.out(0)[row * k + i] += backward.outputs[0].values[at] * weight;
        c.magnitude(0)[row * k + i] += magnitude * std::abs(weight);
        if (!t.frozen()) {
          c.out(2)[v * k + i] += backward.outputs[0].values[at] * in;
          c.magnitude(2)[v * k + i] += magnitude * std::abs(in);
        }
      }
    }
  }
}

// The sums of both products and of CrossEntropy, the roundings of CrossEntropyGrad, and the stored
// logits and dlogits.
Tolerance tolerance(ToleranceContext& c) {
  const int64_t longest = std::max({c.in(0).back(), c.in(1)[0], c.in(2).elements()});
  return c.of_products(longest, 24 + 2 * c.of_storage(), 2);
}

}  // namespace

extern const OpDef op_fused_linear_cross_entropy{
    .name = "FusedLinearCrossEntropy",
    .inputs = 4,
    .count_outputs = count_outputs,
    .is_fused = true,
    .types = "F, F, i32, f32 -> F, f32, f32",
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace fused_linear_cross_entropy_op
}  // namespace bowline::detail
