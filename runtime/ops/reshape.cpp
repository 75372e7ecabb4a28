// Reshape: the same elements with another shape.
//
//   y[i] = x[i], where i is the row-major position
//
// Shapes    any x  ->  y of the shape `dims`. One size may be -1 and is then inferred.
// Gradient  Reshape of dy to the shape of x.
// View      y shares the bytes of x; there is no kernel.
#include "ops/build.h"
#include "ops/counted.h"
#include "ops/op.h"

namespace bowline::detail::reshape_op {
namespace {

// The size given as -1, from the number of remaining elements.
Result<int64_t> inferred_dim(const Shape& x, const Shape& others) {
  const int64_t rest = others.elements();
  BOWLINE_REQUIRE(rest != 0 && x.elements() % rest == 0, "Dim -1 of {} cannot be inferred from {}.",
                  others, x);
  return x.elements() / rest;
}

Status infer(InferContext& c) {
  const auto& dims = *c.attributes<ReshapeAttributes>().dims();
  Shape y;
  int open = -1;
  for (uint32_t a = 0; a < dims.size(); ++a) {
    int64_t value = dims.Get(a);
    if (value == -1) {
      BOWLINE_REQUIRE(open < 0, "Two dims ({} and {}) are -1.", open, a);
      open = static_cast<int>(a);
      value = 1;
    }
    BOWLINE_REQUIRE(value >= 0, "Dim {} is negative: {}.", a, value);
    y.push_back(value);
  }
  BOWLINE_TRY_ASSIGN(y, Shape::checked(y.dims()));
  if (open >= 0) {
    BOWLINE_TRY_ASSIGN(y[open], inferred_dim(c.in(0), y));
  }
  BOWLINE_REQUIRE(y.elements() == c.in(0).elements(),
                  "Shape {} does not have the {} elements of {}.", y, c.in(0).elements(), c.in(0));
  return c.out(0, y);
}

Status gradient(GradientContext& c) { return c.din(0, reshaped(c, c.dout(0), c.shape(c.in(0)))); }

// An output axis corresponds to an input axis if equally many elements lie before both. If several
// axes of size 1 qualify, the axis whose dims entry names the dimension is chosen.
int axis_behind(CountedContext& c, int from) {
  const int64_t before = c.in(0).elements(0, from);
  int found = -1;
  for (int a = 0; a < c.out(0).rank(); ++a) {
    if (c.out(0)[a] != c.in(0)[from] || c.out(0).elements(0, a) != before) {
      continue;
    }
    const bool named = c.attribute_dim("dims", static_cast<uint32_t>(a)) == c.dim(0, from);
    found = found < 0 || named ? a : found;
  }
  return found;
}

Status counted_axes(CountedContext& c) {
  std::array<int, kMaxRank> counts;  // by axis of the output
  counts.fill(c.kNone);
  for (int from = 0; from < c.in(0).rank(); ++from) {
    if (c.dim(0, from) == c.kNone) {
      continue;
    }
    const int to = axis_behind(c, from);
    if (to < 0) {
      return c.refuse(
          0, from,
          format("the output {} has no axis that corresponds to it in {}", c.out(0), c.in(0)));
    }
    counts[static_cast<size_t>(to)] = c.dim(0, from);
    c.count(0, to, c.dim(0, from));
  }
  for (int a = 0; a < c.out(0).rank(); ++a) {
    const int named = c.attribute_dim("dims", static_cast<uint32_t>(a));
    BOWLINE_REQUIRE_CODE(
        named == c.kNone || named == counts[static_cast<size_t>(a)], Code::unsupported,
        "Entry {} of dims names a dynamic dimension, but the input is not dynamic there.", a);
  }
  return {};
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  std::ranges::copy(c.in(0), c.out(0).begin());
}

}  // namespace

extern const OpDef op_reshape{
    .name = "Reshape",
    .is_view = true,
    .types = "A -> A",
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .keeps_loss_weight = 0b1,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::reshape_op
