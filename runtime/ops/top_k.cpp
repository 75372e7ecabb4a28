// TopK: the k largest or smallest elements along an axis, sorted, and their indices.
//
//   values[.., j, ..] = x[.., indices[.., j, ..], ..],  0 <= j < k
//
// Shapes    x of rank >= 1, 0 <= k <= the size of the axis  ->  values of the shape of x and
//           indices i32, both of size k along the axis.
// Numerics  exact. The largest (smallest) element is first. Equal elements are sorted by index. NaN
//           counts as larger than every other value, as in PyTorch: it is first among the largest
//           and last among the smallest.
// Gradient  ScatterElements of the gradient of values into zeros.
// Source    ONNX operators, TopK with `sorted`.
#include "ops/build.h"
#include "ops/extreme.h"
#include "ops/gather.h"
#include "ops/lines.h"

namespace bowline::detail::top_k_op {
namespace {

Status infer(InferContext& c) {
  const auto& t = c.attributes<TopKAttributes>();
  Shape y = c.in(0);
  BOWLINE_TRY_ASSIGN(const int axis, normalise_axis(t.axis(), y.rank()));
  BOWLINE_REQUIRE(t.k() >= 0 && t.k() <= y[axis], "k ({}) lies outside the axis ({}).", t.k(),
                  y[axis]);
  y[axis] = t.k();
  return c.out_each({y, y});
}

Status gradient(GradientContext& c) {
  return c.din(0, gather::scattered(c, zeros_like(c, c.in(0)), c.out(1), c.dout(0),
                                    c.attributes<TopKAttributes>().axis(), ScatterReduction::none));
}

Status counted_axes(CountedContext& c) {
  const int rank = c.in(0).rank();
  const int axis = c.axis<TopKAttributes>(rank);
  for (int a = 0; a < rank; ++a) {
    if (a != axis) {
      c.count(0, a, c.dim(0, a));
      c.count(1, a, c.dim(0, a));
    }
  }
  return counted::none(c, 0, axis, axis + 1, "the axis of TopK must be static");
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<TopKAttributes>();
  const Shape& x = c.shape(0);
  const int axis = c.axis<TopKAttributes>(x.rank());
  const size_t step = step_of(x, axis);
  const auto n = static_cast<size_t>(x[axis]);
  const auto k = static_cast<size_t>(t.k());
  for_lines(x, axis, [&](size_t begin) {
    std::vector<size_t> order(n);
    for (size_t i = 0; i < n; ++i) {
      order[i] = i;
    }
    std::ranges::stable_sort(order, [&](size_t a, size_t b) {
      const double first = c.in(0)[begin + a * step];
      const double second = c.in(0)[begin + b * step];
      return t.largest() ? extreme::beats(true, first, second)
                         : extreme::beats(true, second, first);
    });
    const size_t to = begin / (n * step) * k * step + begin % step;
    for (size_t j = 0; j < k; ++j) {
      c.out(0)[to + j * step] = c.in(0)[begin + order[j] * step];
      c.out(1)[to + j * step] = static_cast<double>(order[j]);
    }
  });
}

}  // namespace

extern const OpDef op_top_k{
    .name = "TopK",
    .outputs = 2,
    .types = "N -> N, i32",
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::top_k_op
