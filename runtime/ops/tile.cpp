// Tile: repeats a tensor along its axes.
//
//   y[.., i, ..] = x[.., i mod n, ..]
//
// Shapes    x, and repeats with one entry per axis  ->  y, whose sizes are those of x times the
//           repeats.
// Gradient  PadGrad with mode wrap.
// Source    ONNX operators, Tile.
#include "ops/counted.h"
#include "ops/padding.h"

namespace bowline::detail::tile_op {
namespace {

Status infer(InferContext& c) {
  const Shape& x = c.in(0);
  const auto& repeats = *c.attributes<TileAttributes>().repeats();
  BOWLINE_REQUIRE(repeats.size() == static_cast<uint32_t>(x.rank()),
                  "There are {} repeats for {} axes.", repeats.size(), x.rank());
  Shape y;
  for (int a = 0; a < x.rank(); ++a) {
    const int64_t times = repeats.Get(static_cast<uint32_t>(a));
    BOWLINE_REQUIRE(times >= 0, "Axis {} has a negative number of repeats: {}.", a, times);
    BOWLINE_REQUIRE(times == 0 || x[a] <= kMaxDim / times,
                    "Axis {} of {} elements, repeated {} times, is longer than {}.", a, x[a], times,
                    kMaxDim);
    y.push_back(x[a] * times);
  }
  return c.out(0, y);
}

Status gradient(GradientContext& c) {
  const Shape& x = c.shape(c.in(0));
  const Shape& y = c.shape(c.dout(0));
  PadAttributesT t;
  t.mode = PadMode::wrap;
  for (int a = 0; a < x.rank(); ++a) {
    t.begin.push_back(0);
    t.end.push_back(y[a] - x[a]);
  }
  return c.din(0, padding::gradient_of(c, t));
}

Status counted_axes(CountedContext& c) {
  for (int a = 0; a < c.in(0).rank(); ++a) {
    if (c.in(0)[a] != c.out(0)[a]) {
      BOWLINE_TRY(counted::none(c, 0, a, a + 1, "a repeated axis must be static"));
    }
  }
  return counted::elementwise(c);
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const Shape& x = c.shape(0);
  for (Index i(c.out_shape(0)); i.valid(); i.next()) {
    int64_t at = 0;
    for (int a = 0; a < x.rank(); ++a) {
      at = at * x[a] + i[a] % x[a];
    }
    c.out(0)[i.flat()] = c.in(0)[static_cast<size_t>(at)];
  }
}

}  // namespace

extern const OpDef op_tile{
    .name = "Tile",
    .types = "A -> A",
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::tile_op
