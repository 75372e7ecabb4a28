// OneHot: a one at each index along a new axis, zeros elsewhere.
//
//   y[.., d, ..] = indices[.., ..] == d or indices[.., ..] == d - depth ? 1 : 0,  0 <= d < depth
//
// Shapes    indices i32 of rank <= 7  ->  y of the dtype `to`, with a new axis of size `depth` at
//           position `axis` of y.
// Numerics  exact. Negative indices in [-depth, 0) count from the end. An index outside [-depth,
//           depth) gives zeros and is no error.
// Gradient  none.
// Source    ONNX operators, OneHot, with the values 0 and 1. torch.nn.functional.one_hot refuses
//           indices outside [0, depth).
#include "ops/gather.h"

namespace bowline::detail::one_hot_op {
namespace {

Status infer(InferContext& c) {
  const auto& t = c.attributes<OneHotAttributes>();
  const int rank = c.in(0).rank() + 1;
  BOWLINE_REQUIRE(rank <= kMaxRank,
                  "The indices have rank {}, which leaves no room for another axis.",
                  c.in(0).rank());
  BOWLINE_TRY_ASSIGN(const int axis, normalise_axis(t.axis(), rank));
  BOWLINE_REQUIRE(t.depth() >= 0, "The depth ({}) is negative.", t.depth());
  Shape y;
  for (int a = 0; a < rank; ++a) {
    y.push_back(a == axis ? t.depth() : c.in(0)[a < axis ? a : a - 1]);
  }
  return c.out(0, y, static_cast<DType>(t.to()));
}

// Indices behind the current size have no effect.
Status counted_axes(CountedContext& c) {
  const int axis = c.axis<OneHotAttributes>(c.out(0).rank());
  for (int a = 0; a < c.in(0).rank(); ++a) {
    c.count(0, a < axis ? a : a + 1, c.dim(0, a));
  }
  return {};
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const Shape& y = c.out_shape(0);
  const int axis = c.axis<OneHotAttributes>(y.rank());
  for (Index i(y); i.valid(); i.next()) {
    int64_t from = 0;
    for (int a = 0; a < y.rank(); ++a) {
      from = a == axis ? from : from * y[a] + i[a];
    }
    const auto at = gather::element(c.in(0)[static_cast<size_t>(from)], y[axis]);
    c.out(0)[i.flat()] = at == i[axis] ? 1 : 0;
  }
}

}  // namespace

extern const OpDef op_one_hot{
    .name = "OneHot",
    .types = "i32 -> A",
    .infer = infer,
    .counted = counted_axes,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::one_hot_op
