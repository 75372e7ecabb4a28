// CumSum: cumulative sums along an axis.
//
//   y[.., i, ..] = sum of x[.., j, ..] over j <= i
//   exclusive: j < i;  reverse: j >= i, or j > i if also exclusive
//
// Shapes    x of rank >= 1  ->  y of the shape of x.
// Numerics  accumulated in f32 for every float dtype. Integers wrap around.
// Gradient  CumSum of dy, with the opposite `reverse`.
// Source    ONNX operators, CumSum.
#include <cmath>

#include "ops/counted.h"
#include "ops/elementwise.h"
#include "ops/lines.h"
#include "ops/op.h"

namespace bowline::detail::cum_sum_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_TRY(normalise_axis(c.attributes<CumSumAttributes>().axis(), c.in(0).rank()).status());
  return c.out(0, c.in(0));
}

Status gradient(GradientContext& c) {
  CumSumAttributesT back;
  c.attributes<CumSumAttributes>().UnPackTo(&back);
  back.reverse = !back.reverse;
  return c.din(0, c.add1(Op::CumSum, {c.dout(0)}, Attributes::of(back)));
}

// If the sums start at the end, elements behind the current size would come first.
Status counted_axes(CountedContext& c) {
  if (c.attributes<CumSumAttributes>().reverse()) {
    c.mask(0, c.axis<CumSumAttributes>(c.in(0).rank()), 0);
  }
  return counted::elementwise(c);
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<CumSumAttributes>();
  const Shape& x = c.shape(0);
  const int axis = c.axis<CumSumAttributes>(x.rank());
  const auto n = static_cast<size_t>(x[axis]);
  const auto magnitude = c.zero_magnitude(0);
  for_lines(x, axis, [&](size_t begin) {
    double sum = 0;
    double size = 0;
    for (size_t k = 0; k < n; ++k) {
      const size_t at = begin + (t.reverse() ? n - 1 - k : k) * step_of(x, axis);
      const double with = elementwise::wrapped(sum + c.in(0)[at], c.dtype(0));
      const double size_with = size + std::abs(c.in(0)[at]);
      c.out(0)[at] = t.exclusive() ? sum : with;
      magnitude[at] = t.exclusive() ? size : size_with;
      sum = with;
      size = size_with;
    }
  });
}

Tolerance tolerance(ToleranceContext& c) {
  return Tolerance::of_reduction(c.in(0)[c.axis<CumSumAttributes>(c.in(0).rank())], 0);
}

}  // namespace

extern const OpDef op_cum_sum{
    .name = "CumSum",
    .types = "N -> N",
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::cum_sum_op
