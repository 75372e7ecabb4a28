// Parts shared by losses: their reduction, and definitions of losses that compare a tensor with a
// target element by element, made from functions in double precision. The formulas for kernels are
// in formulas/losses.inc.
#pragma once

#include "ops/counted.h"
#include "ops/elementwise.h"
#include "ops/op.h"

namespace bowline::detail::losses {

// Checks that the labels, input 1, have one class for each row of input 0. Returns the shape of the
// labels. `x` and `labels` name the inputs in messages.
inline Result<Shape> rows_of_classes(const InferContext& c, std::string_view x,
                                     std::string_view labels) {
  const Shape& classes = c.in(0);
  BOWLINE_REQUIRE(classes.rank() >= 1, "The {} have rank 0.", x);
  BOWLINE_REQUIRE(classes.back() >= 1, "The {} {} have no classes.", x, classes);
  const Shape rows(classes.dims().first(static_cast<size_t>(classes.rank() - 1)));
  BOWLINE_REQUIRE(c.in(1) == rows, "Shape of {} ({}) is not the shape of the rows of the {} ({}).",
                  labels, c.in(1), x, rows);
  return rows;
}

// The shape of a loss and of its gradient. `terms` is the shape of the unreduced terms.
inline Shape reduced(Reduction reduction, const Shape& terms) {
  return reduction == Reduction::none ? terms : Shape{};
}

// Checks the label smoothing of CrossEntropy and its gradient.
inline Status check_smoothing(double smoothing) {
  BOWLINE_REQUIRE(smoothing >= 0 && smoothing <= 1, "The label smoothing {} lies outside [0, 1].",
                  smoothing);
  return {};
}

// Adds the terms of a loss in a reference implementation. The mean is the sum of the losses divided
// by the sum of their weights.
class Total {
 public:
  Total(const OracleContext& c, Reduction reduction)
      : c_(c), reduction_(reduction), magnitude_(c.zero_magnitude(0)) {}

  void add(size_t term, double loss, double magnitude, double weight) {
    const size_t at = reduction_ == Reduction::none ? term : 0;
    c_.out(0)[at] += loss;
    magnitude_[at] += magnitude;
    weight_ += weight;
  }
  void finish() {
    if (reduction_ == Reduction::mean && weight_ != 0) {
      c_.out(0)[0] /= weight_;
      magnitude_[0] /= std::abs(weight_);
    }
  }

 private:
  const OracleContext& c_;
  Reduction reduction_;
  std::span<double> magnitude_;
  double weight_ = 0;
};

// The factor of the gradient of a term. dloss is input `i`; `weight` is the sum of the weights of
// all terms.
inline double factor(const OracleContext& c, int i, Reduction reduction, size_t term,
                     double weight) {
  const double dloss = c.in(i)[reduction == Reduction::none ? term : 0];
  return reduction == Reduction::mean && weight != 0 ? dloss / weight : dloss;
}

// Rule for a loss over all elements.
inline Status counted_elements(CountedContext& c) {
  for (const int i : {0, 1}) {
    BOWLINE_TRY(counted::none(c, i, "a loss over all elements needs static inputs"));
  }
  return {};
}

// The number of elements, for a loss that is the mean over all elements.
template <class Table>
std::optional<LossWeight> weight_of_elements(GradientContext& c) {
  if (c.attributes<Table>().reduction() != Reduction::mean) {
    return {};
  }
  return LossWeight{{}, static_cast<double>(c.shape(c.in(0)).elements())};
}

// The sum of the weights of the counted rows, for a mean loss with labels. `weight` has the shape
// [classes]; if it is invalid, every weight is 1.
template <class Table>
std::optional<LossWeight> weight_of_rows(GradientContext& c, GradientValue weight) {
  const auto& t = c.attributes<Table>();
  if (t.reduction() != Reduction::mean) {
    return {};
  }
  const GradientValue labels = c.in(1);
  const double rows = static_cast<double>(c.shape(labels).elements());
  // The ignored label is added from two parts, because an f32 Fill has only 24 significant bits.
  const auto whole = [&](int32_t n) {
    return filled(c, Shape{}, DType::i32, static_cast<float>(n));
  };
  const int32_t high = t.ignore_index() >> 16;
  const GradientValue upper = c.add1(Op::Mul, {whole(high), whole(1 << 16)});
  const GradientValue ignored =
      c.add1(Op::Add, {upper, whole(t.ignore_index() - high * (1 << 16))});
  const GradientValue counts = c.add1(Op::NotEqual, {labels, ignored});
  if (!counts.valid()) {
    return LossWeight{{}, rows};
  }
  GradientValue each = cast_to(c, counts, DType::f32);
  if (weight.valid()) {
    // The ignored label may be out of range. The lookup uses class 0 instead, and
    // its weight is not counted.
    const GradientValue safe =
        c.add1(Op::Where, {counts, labels, filled(c, Shape{}, DType::i32, 0)});
    const GradientValue read =
        c.add1(Op::Gather, {weight, safe}, Attributes::of(GatherAttributesT{}));
    each = c.add1(Op::Where,
                  {counts, cast_to(c, read, DType::f32), filled(c, Shape{}, DType::f32, 0)});
  }
  return LossWeight{c.add1(Op::ReduceSum, {each}, Attributes::of(ReduceAttributesT{})), rows};
}

// Rule for labels of rows. A dynamic row axis applies to the labels too; rows behind the count do
// not count.
template <class Table>
Status counted_rows(CountedContext& c, std::initializer_list<int> outputs_of_rows) {
  const int rows = c.in(1).rank();
  BOWLINE_TRY(counted::none(c, 0, rows, rows + 1, "the number of classes must be static"));
  const auto& t = c.attributes<Table>();
  for (int a = 0; a < rows; ++a) {
    BOWLINE_TRY_ASSIGN(const int dim, counted::common(c, {{0, a}, {1, a}}));
    c.mask(1, a, t.ignore_index());
    for (const int o : outputs_of_rows) {
      c.count(o, a, dim);
    }
    if (t.reduction() == Reduction::none) {
      c.count(0, a, dim);
    }
  }
  return {};
}

using elementwise::Point;
using Surface = Point (*)(double x, double t, const Attributes& attributes);

template <class Table>
Status infer(InferContext& c) {
  BOWLINE_TRY(check_shape("the target", c.in(1), "x", c.in(0)));
  return c.out(0, reduced(c.attributes<Table>().reduction(), c.in(0)));
}

template <class Table>
Status infer_gradient(InferContext& c) {
  BOWLINE_TRY(check_shape("the target", c.in(1), "x", c.in(0)));
  const Shape loss = reduced(c.attributes<Table>().reduction(), c.in(0));
  BOWLINE_TRY(check_shape("dloss", c.in(2), "the loss", loss));
  return c.out(0, c.in(0));
}

// The loss depends on x - target, so the gradient of the target is the negated gradient of x.
template <Op grad>
Status gradient_of_difference(GradientContext& c) {
  const GradientValue d = c.add1(grad, {c.in(0), c.in(1), c.dout(0)}, c.attributes());
  BOWLINE_TRY(c.din(0, d));
  return c.needs(1) ? c.din(1, c.add1(Op::Neg, {d})) : Status();
}

template <Surface loss, class Table>
void oracle(const OracleContext& c) {
  Total total(c, c.attributes<Table>().reduction());
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    const Point at = loss(c.in(0)[i], c.in(1)[i], c.attributes());
    total.add(i, at.value, at.magnitude, 1);
  }
  total.finish();
}

template <Surface slope, class Table>
void gradient_oracle(const OracleContext& c) {
  const auto magnitude = c.zero_magnitude(0);
  const auto n = static_cast<double>(c.in(0).size());
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    const Point at = slope(c.in(0)[i], c.in(1)[i], c.attributes());
    const double f = factor(c, 2, c.attributes<Table>().reduction(), i, n);
    c.out(0)[i] = at.value * f;
    magnitude[i] = at.magnitude * std::abs(f);
  }
}

// loss = reduction of f(x, target), where x and target have the same shape and dtype.
template <Surface f, class Table>
constexpr OpDef definition(const char* name, Status (*infer)(InferContext&),
                           Status (*gradient)(GradientContext&),
                           Tolerance (*tolerance)(ToleranceContext&)) {
  return {.name = name,
          .inputs = 2,
          .types = "F, F -> f32",
          .infer = infer,
          .counted = counted_elements,
          .gradient = gradient,
          .loss_weight = weight_of_elements<Table>,
          .oracle = BOWLINE_ORACLE((oracle<f, Table>)),
          .tolerance = tolerance};
}

// dx = f'(x, target) dloss, from x, target and dloss. Works in place on x or the target.
template <Surface slope, class Table>
constexpr OpDef gradient_definition(const char* name, Tolerance (*tolerance)(ToleranceContext&)) {
  return {.name = name,
          .inputs = 3,
          .types = "F, F, f32 -> F",
          .in_place = {{0, 0}, {0, 1}},
          .infer = infer_gradient<Table>,
          .oracle = BOWLINE_ORACLE((gradient_oracle<slope, Table>)),
          .tolerance = tolerance};
}

}  // namespace bowline::detail::losses
