// Slice: a range of indices along an axis.
//
//   y[.., i, ..] = x[.., start + i, ..],  0 <= i < length
//
// Shapes    x of rank >= 1; [start, start + length) inside the axis. A length of -1 means up to the
//           end.
// Gradient  SliceGrad: dy with zeros around it.
#include "ops/counted.h"
#include "ops/index.h"
#include "ops/op.h"

namespace bowline::detail::slice_op {
namespace {

Status infer(InferContext& c) {
  const auto& t = c.attributes<SliceAttributes>();
  Shape y = c.in(0);
  BOWLINE_TRY_ASSIGN(const int axis, normalise_axis(t.axis(), y.rank()));
  BOWLINE_REQUIRE(t.start() >= 0 && t.start() <= y[axis], "Start {} lies outside the axis ({}).",
                  t.start(), y[axis]);
  const int64_t length = t.length() == -1 ? y[axis] - t.start() : t.length();
  BOWLINE_REQUIRE(length >= 0 && length <= y[axis] - t.start(),
                  "Length {} from {} lies outside the axis ({}).", length, t.start(), y[axis]);
  y[axis] = length;
  return c.out(0, y);
}

Status gradient(GradientContext& c) {
  const Shape& x = c.shape(c.in(0));
  const auto& t = c.attributes<SliceAttributes>();
  SliceGradAttributesT a;
  a.axis = c.axis<SliceAttributes>(x.rank());
  a.start = t.start();
  a.size = x[a.axis];
  return c.din(0, c.add1(Op::SliceGrad, {c.dout(0)}, Attributes::of(a)));
}

// A dynamic length makes the output axis dynamic. A dynamic input axis must be taken as a whole.
Status counted_axes(CountedContext& c) {
  const auto& t = c.attributes<SliceAttributes>();
  const int axis = c.axis<SliceAttributes>(c.in(0).rank());
  const int length = c.attribute_dim("length");
  const int whole = c.dim(0, axis);
  counted::pass(c, 0, c.in(0).rank());
  const bool is_all = t.start() == 0 && (t.length() == -1 || length == whole);
  if (whole != c.kNone && !is_all) {
    return c.refuse(0, axis, "a sliced axis must be static");
  }
  c.count(0, axis, whole != c.kNone ? whole : length);
  return {};
}

// True if the result is the first rows of x.
bool is_front(const Attributes& attributes, const Shape& x) {
  const auto& t = attributes.as<SliceAttributes>();
  return t.start() == 0 && x.elements(0, positive_axis(t.axis(), x.rank())) == 1;
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<SliceAttributes>();
  const Shape& x = c.shape(0);
  const int axis = c.axis<SliceAttributes>(x.rank());
  for (Index i(c.out_shape(0)); i.valid(); i.next()) {
    c.out(0)[i.flat()] = c.in(0)[i.in_whole(x, axis, t.start())];
  }
}

}  // namespace

extern const OpDef op_slice{
    .name = "Slice",
    .is_front = is_front,
    .types = "A -> A",
    .gathers = 0b1,
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::slice_op
