// GatherElements: single elements along an axis, each selected by its own index.
//
//   y[.., i, ..] = data[.., indices[.., i, ..], ..]
//
// Shapes    data of rank >= 1; indices i32 of the same rank, and no larger than data along every
//           other axis  ->  y of the shape of indices. Negative indices count from the end of the
//           axis.
// Errors    index_out_of_range: an index is outside [-n, n) for an axis of size n. Its element of y
//           is zero.
// Gradient  ScatterElements adds dy to zeros. Indices have no gradient.
// Source    ONNX operators, GatherElements; torch.gather, which refuses negative indices.
#include "ops/gather.h"

namespace bowline::detail::gather_elements_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_TRY_ASSIGN(const int axis,
                     normalise_axis(c.attributes<GatherAttributes>().axis(), c.in(0).rank()));
  BOWLINE_TRY(gather::check_within("indices", c.in(1), c.in(0), axis));
  return c.out(0, c.in(1));
}

Status gradient(GradientContext& c) {
  const Shape& data = c.shape(c.in(0));
  const GradientValue zeros = filled(c, data, c.dtype(c.in(0)), 0);
  return c.din(0, gather::scattered(c, zeros, c.in(1), c.dout(0),
                                    c.axis<GatherAttributes>(data.rank()), ScatterReduction::add));
}

// Indices behind the current size are unused; they only must be valid.
Status counted_axes(CountedContext& c) {
  const int axis = c.axis<GatherAttributes>(c.in(0).rank());
  for (int a = 0; a < c.in(0).rank(); ++a) {
    if (c.dim(0, a) != c.kNone && (a == axis || c.dim(1, a) != c.dim(0, a))) {
      return c.refuse(0, a, "an index may select any of its elements");
    }
    c.mask(1, a, 0);
    c.count(0, a, c.dim(1, a));
  }
  return {};
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const Shape& data = c.shape(0);
  const int axis = c.axis<GatherAttributes>(data.rank());
  for (Index i(c.shape(1)); i.valid(); i.next()) {
    const double index = c.in(1)[i.flat()];
    if (const auto at = gather::element(index, data[axis])) {
      c.out(0)[i.flat()] = c.in(0)[i.in_whole(data, axis, *at - i[axis])];
    } else {
      c.outcome.bad_indices.push_back(index);
    }
  }
}

}  // namespace

extern const OpDef op_gather_elements{
    .name = "GatherElements",
    .inputs = 2,
    .types = "A, i32 -> A",
    .gathers = 0b1,
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::gather_elements_op
