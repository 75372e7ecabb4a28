// Classification losses. The class axis is axis 1.
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// Reshapes [n, classes, d..] to rows [n * d.., classes].
Term class_rows(Context& c, const Term& x) {
  const int64_t classes = x.dims[1];
  const int64_t rows = classes == 0 ? 0 : x.elements() / classes;
  return c.m.reshape(channels_last(c, x), {rows, classes});
}

// The inverse of class_rows().
Term from_rows(Context& c, const Term& rows, const Dims& dims) {
  return channels_second(c, c.m.reshape(rows, dims.without(1).joined({dims[1]})));
}

void check(const Term& scores, const Term& labels) {
  require(scores.rank() >= 2 && labels.dims == scores.dims.without(1),
          "Labels {} do not fit scores {}.", labels.dims, scores.dims);
}

// `rows` are log-probabilities. Without ignore_index every label counts; the placeholder index is
// not a valid class.
Term from_log_probabilities(Context& c, const Term& rows, const Term& labels) {
  const std::string reduction = c.choice("reduction", "mean", "mean sum none", "Reduction");
  const int64_t ignored = c.integer("ignore_index", INT32_MIN);
  require_small("Ignore_index", {ignored});
  Terms in = {rows, c.m.reshape(cast(labels, DType::i32), {rows.dims[0]})};
  if (c.has(2)) {
    in.push_back(c.m.untrained(c.in(2)));
  }
  const bool each = reduction == "none";
  const Term loss =
      c.m.op("NegativeLogLikelihood", in, {{"ignore_index", ignored}, {"reduction", reduction}},
             DType::f32, each ? Dims{rows.dims[0]} : Dims{});
  return cast(each ? c.m.reshape(loss, labels.dims) : loss, rows.dtype);
}

Term negative_log_likelihood(Context& c) {
  const Term scores = c.in(0), labels = c.in(1);
  check(scores, labels);
  return from_log_probabilities(c, class_rows(c, scores), labels);
}

Term softmax_cross_entropy(Context& c) {
  const Term scores = c.in(0), labels = c.in(1);
  check(scores, labels);
  const Term rows = c.m.unary("LogSoftmax", class_rows(c, scores), {{"axis", -1}});
  if (c.wants(1)) {
    c.out(1, from_rows(c, rows, scores.dims));
  }
  return from_log_probabilities(c, rows, labels);
}

constexpr Lowering kLossLowerings[] = {
    {"NegativeLogLikelihoodLoss", negative_log_likelihood},
    {"SoftmaxCrossEntropyLoss", softmax_cross_entropy},
};

}  // namespace

std::span<const Lowering> lowerings_of_loss() { return kLossLowerings; }

}  // namespace bowline::onnx
