// Gather: slices of a tensor along an axis, selected by indices.
//
//   y[before, .., behind] = data[before, indices[..], behind]
//   `before` and `behind` are the indices of the axes before and behind the axis
//
// Shapes    data [before, n, behind], indices i32 of any shape  ->  y [before, shape of indices,
//           behind] of rank <= 8. Negative indices in [-n, 0) count from the end.
// Errors    index_out_of_range: an index is outside [-n, n) and y is not empty. Its elements of y
//           are zero.
// Gradient  ScatterElements adds dy to zeros. Indices have no gradient.
// Source    ONNX operators, Gather. Embedding is Gather along axis 0 without negative indices.
#include "ops/gather.h"

#include "ops/counted.h"

namespace bowline::detail::gather_op {
namespace {

Status infer(InferContext& c) {
  const Shape& data = c.in(0);
  const Shape& indices = c.in(1);
  BOWLINE_TRY_ASSIGN(const int axis,
                     normalise_axis(c.attributes<GatherAttributes>().axis(), data.rank()));
  const int rank = data.rank() - 1 + indices.rank();
  BOWLINE_REQUIRE(rank <= kMaxRank,
                  "Indices of rank {} into data of rank {} would give rank {}, which is too high.",
                  indices.rank(), data.rank(), rank);
  Shape y;
  for (int a = 0; a < axis; ++a) {
    y.push_back(data[a]);
  }
  for (const int64_t dim : indices.dims()) {
    y.push_back(dim);
  }
  for (int a = axis + 1; a < data.rank(); ++a) {
    y.push_back(data[a]);
  }
  return c.out(0, y);
}

// Reshapes to [before, n, behind] and [before, indices, behind].
Status gradient(GradientContext& c) {
  const Shape data = c.shape(c.in(0));
  const int64_t count = c.shape(c.in(1)).elements();
  const int axis = c.axis<GatherAttributes>(data.rank());
  const int64_t before = data.elements(0, axis);
  const int64_t behind = data.elements(axis + 1, data.rank());
  const GradientValue zeros = filled(c, {before, data[axis], behind}, c.dtype(c.in(0)), 0);
  const GradientValue indices = reshaped(c, c.in(1), {1, count, 1});
  const GradientValue dy = reshaped(c, c.dout(0), {before, count, behind});
  const GradientValue d = gather::scattered(c, zeros, indices, dy, 1, ScatterReduction::add);
  return c.din(0, reshaped(c, d, data));
}

Status counted_axes(CountedContext& c) {
  const int rank = c.in(0).rank();
  const int axis = c.axis<GatherAttributes>(rank);
  BOWLINE_TRY(counted::none(c, 0, axis, axis + 1, "an index may select any of its elements"));
  for (int a = 0; a < rank; ++a) {
    if (a != axis) {
      c.count(0, a < axis ? a : a - 1 + c.in(1).rank(), c.dim(0, a));
    }
  }
  for (int a = 0; a < c.in(1).rank(); ++a) {
    c.mask(1, a, 0);  // 0 is a valid index
    c.count(0, axis + a, c.dim(1, a));
  }
  return {};
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const Shape& data = c.shape(0);
  const int axis = c.axis<GatherAttributes>(data.rank());
  const auto before = static_cast<size_t>(data.elements(0, axis));
  const auto behind = static_cast<size_t>(data.elements(axis + 1, data.rank()));
  const auto n = static_cast<size_t>(data[axis]);
  const size_t count = c.out(0).empty() ? 0 : c.in(1).size();
  for (size_t k = 0; k < count; ++k) {
    const auto at = gather::element(c.in(1)[k], data[axis]);
    if (!at) {
      c.outcome.bad_indices.push_back(c.in(1)[k]);
      continue;
    }
    for (size_t o = 0; o < before; ++o) {
      for (size_t i = 0; i < behind; ++i) {
        c.out(0)[(o * count + k) * behind + i] =
            c.in(0)[(o * n + static_cast<size_t>(*at)) * behind + i];
      }
    }
  }
}

}  // namespace

extern const OpDef op_gather{
    .name = "Gather",
    .inputs = 2,
    .types = "A, i32 -> A",
    .gathers = 0b1,
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::gather_op
