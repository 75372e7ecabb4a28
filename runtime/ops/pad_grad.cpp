// PadGrad: the gradient of Pad and Tile. Tile is Pad with mode wrap.
//
//   dx[j] = sum of dy[i] over all i for which Pad copies x[j]
//
// Shapes    dy, and the attributes of a Pad whose result has the shape of dy  ->  dx of the shape
//           of the input of Pad.
// Numerics  accumulated in f32, in increasing order of i.
// Gradient  none.
#include "ops/padding.h"

namespace bowline::detail::pad_grad_op {
namespace {

Status infer(InferContext& c) {
  const auto& t = c.attributes<PadAttributes>();
  const Shape& dy = c.in(0);
  const auto rank = static_cast<uint32_t>(dy.rank());
  BOWLINE_REQUIRE(t.begin()->size() == rank && t.end()->size() == rank,
                  "There are {} pads at the start and {} at the end of {} axes.", t.begin()->size(),
                  t.end()->size(), rank);
  Shape dx;
  for (uint32_t a = 0; a < rank; ++a) {
    const int64_t size = dy[static_cast<int>(a)] - t.begin()->Get(a) - t.end()->Get(a);
    BOWLINE_REQUIRE(size >= 0, "Pads {} and {} exceed the size of axis {} of dy ({}).",
                    t.begin()->Get(a), t.end()->Get(a), a, dy[static_cast<int>(a)]);
    dx.push_back(size);
  }
  BOWLINE_TRY(padding::axes_of(t, dx).status());
  return c.out(0, dx);
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<PadAttributes>();
  const auto axes = padding::axes_of(t, c.out_shape(0)).value();
  for (Index i(c.shape(0)); i.valid(); i.next()) {
    const int64_t at = padding::position_of(axes, t.mode(), i);
    if (at >= 0) {
      c.add(0, static_cast<size_t>(at), c.in(0)[i.flat()]);
    }
  }
}

// Bound on the number of copies of an element along an axis: the copies outside of x, plus itself.
Tolerance tolerance(ToleranceContext& c) {
  const auto& t = c.attributes<PadAttributes>();
  int64_t terms = 1;
  for (uint32_t a = 0; a < t.begin()->size(); ++a) {
    terms *= std::max<int64_t>(t.begin()->Get(a), 0) + std::max<int64_t>(t.end()->Get(a), 0) + 1;
  }
  return Tolerance::of_reduction(terms, 0);
}

}  // namespace

extern const OpDef op_pad_grad{
    .name = "PadGrad",
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::pad_grad_op
