// Concat: joins any number of tensors along one axis.
//
//   y[.., offset_k + i, ..] = x_k[.., i, ..], offset_k = sum of the sizes of inputs before k
//
// Shapes    inputs that have the same shape except along the axis  ->  y, whose axis is the sum of
//           theirs.
// Gradient  one Slice of dy per input.
#include "ops/build.h"
#include "ops/counted.h"
#include "ops/index.h"
#include "ops/op.h"

namespace bowline::detail::concat_op {
namespace {

Status infer(InferContext& c) {
  Shape y = c.in(0);
  BOWLINE_TRY_ASSIGN(const int axis,
                     normalise_axis(c.attributes<ConcatAttributes>().axis(), y.rank()));
  for (int k = 1; k < c.inputs(); ++k) {
    Shape x = c.in(k);
    BOWLINE_REQUIRE(x.rank() == y.rank(), "Input {} has rank {}, but input 0 has rank {}.", k,
                    x.rank(), y.rank());
    const int64_t joined = y[axis] + x[axis];
    x[axis] = y[axis];
    BOWLINE_REQUIRE(
        x == y, "Shape of input {} ({}) differs from the shape of input 0 ({}) outside axis {}.", k,
        c.in(k), c.in(0), axis);
    y[axis] = joined;
  }
  return c.out(0, y);
}

Status gradient(GradientContext& c) {
  const int axis = c.axis<ConcatAttributes>(c.shape(c.in(0)).rank());
  int64_t start = 0;
  for (int k = 0; k < c.inputs(); ++k) {
    const int64_t length = c.shape(c.in(k))[axis];
    if (c.needs(k)) {
      BOWLINE_TRY(c.din(k, sliced(c, c.dout(0), axis, start, length)));
    }
    start += length;
  }
  return {};
}

Status counted_axes(CountedContext& c) {
  const int axis = c.axis<ConcatAttributes>(c.in(0).rank());
  for (int a = 0; a < c.in(0).rank(); ++a) {
    std::vector<counted::Axis> axes;
    for (int k = 0; k < c.inputs(); ++k) {
      axes.push_back({k, a});
      if (a == axis) {
        BOWLINE_TRY(counted::none(c, k, a, a + 1, "the concatenated axis must be static"));
      }
    }
    BOWLINE_TRY_ASSIGN(const int dim, counted::common(c, axes));
    c.count(0, a, dim);
  }
  return {};
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const Shape& y = c.out_shape(0);
  const int axis = c.axis<ConcatAttributes>(y.rank());
  int64_t offset = 0;
  for (int k = 0; k < c.inputs(); ++k) {
    for (Index i(c.shape(k)); i.valid(); i.next()) {
      c.out(0)[i.in_whole(y, axis, offset)] = c.in(k)[i.flat()];
    }
    offset += c.shape(k)[axis];
  }
}

}  // namespace

extern const OpDef op_concat{
    .name = "Concat",
    .variadic = true,
    .types = "A -> A",
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .loss_terms = LossTerms::stack,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::concat_op
