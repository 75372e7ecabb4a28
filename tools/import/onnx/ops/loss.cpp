// Classification losses. The class axis is axis 1.
#include "base/escape.h"
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// Reshapes [n, classes, d..] to rows [n * d.., classes].
Term class_rows(Context& c, const Term& x) {
  std::vector<int64_t> order = all_axes(x.rank());
  order.erase(order.begin() + 1);
  order.push_back(1);
  const int64_t classes = x.dims[1];
  const int64_t rows = classes == 0 ? 0 : x.elements() / classes;
  return c.m.reshape(c.m.transpose(x, order), {rows, classes});
}

// The inverse of class_rows().
Term from_rows(Context& c, const Term& rows, const Dims& dims) {
  Dims last = dims;
  last.erase(last.begin() + 1);
  last.push_back(dims[1]);
  std::vector<int64_t> order = all_axes(dims.size());
  order.pop_back();
  order.insert(order.begin() + 1, static_cast<int64_t>(dims.size()) - 1);
  return c.m.transpose(c.m.reshape(rows, last), order);
}

Status check(const Term& scores, const Term& labels) {
  Dims expected = scores.dims;
  if (expected.size() >= 2) {
    expected.erase(expected.begin() + 1);
  }
  BOWLINE_REQUIRE_CODE(scores.rank() >= 2 && labels.dims == expected, Code::bad_file,
                       "Labels {} do not fit scores {}.", shape_text(labels.dims),
                       shape_text(scores.dims));
  return {};
}

// `rows` are log-probabilities. Without ignore_index every label counts; the placeholder index is
// not a valid class.
Status from_log_probabilities(Context& c, const Term& rows, const Term& labels) {
  BOWLINE_TRY_ASSIGN(const std::string reduction, c.text("reduction", "mean"));
  BOWLINE_REQUIRE_CODE(reduction == "mean" || reduction == "sum" || reduction == "none",
                       Code::bad_file, "Reduction \"{}\" is not supported.", escaped(reduction));
  BOWLINE_TRY_ASSIGN(const int64_t ignored, c.integer("ignore_index", INT32_MIN));
  BOWLINE_TRY(require_small("Ignore_index", {ignored}));
  Terms in = {rows, c.m.reshape(c.m.cast(labels, DType::i32), {rows.dims[0]})};
  if (c.has(2)) {
    BOWLINE_TRY_ASSIGN(const Term weights, c.in(2));
    in.push_back(c.m.untrained(weights));
  }
  const bool each = reduction == "none";
  const Term loss =
      c.m.op("NegativeLogLikelihood", in, {{"ignore_index", ignored}, {"reduction", reduction}},
             DType::f32, each ? Dims{rows.dims[0]} : Dims{});
  c.out(0, c.m.cast(each ? c.m.reshape(loss, labels.dims) : loss, rows.dtype));
  return {};
}

Status negative_log_likelihood(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term scores, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term labels, c.in(1));
  BOWLINE_TRY(check(scores, labels));
  return from_log_probabilities(c, class_rows(c, scores), labels);
}

Status softmax_cross_entropy(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term scores, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term labels, c.in(1));
  BOWLINE_TRY(check(scores, labels));
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
