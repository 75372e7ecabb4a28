// GlobalAveragePool: the mean of every channel.
//
//   y[n, c, 0...] = (sum of x[n, c, ...] over the spatial axes) / (number of spatial elements)
//
// Shapes    x [N, C, spatial...] of rank >= 3  ->  y [N, C, 1...], of the rank of x.
// Numerics  accumulated in f32. The mean of no elements is NaN.
// Gradient  BroadcastTo of dy / (number of spatial elements).
// Source    ONNX operators, GlobalAveragePool; PyTorch adaptive_avg_pool2d to size 1.
#include <cmath>

#include "ops/build.h"
#include "ops/counted.h"

namespace bowline::detail::global_average_pool_op {
namespace {

Status infer(InferContext& c) {
  const Shape& x = c.in(0);
  BOWLINE_REQUIRE(x.rank() >= 3, "Input x has rank {}, below 3.", x.rank());
  Shape y{x[0], x[1]};
  while (y.rank() < x.rank()) {
    y.push_back(1);
  }
  return c.out(0, y);
}

Status gradient(GradientContext& c) {
  const Shape x = c.shape(c.in(0));
  const float share = 1 / static_cast<float>(x.elements(2, x.rank()));
  return c.din(0, broadcast_to(c, scaled(c, c.dout(0), share), x));
}

// Channels are independent.
Status counted_axes(CountedContext& c) {
  BOWLINE_TRY(counted::none(c, 0, 2, c.in(0).rank(), "the mean needs a static number of elements"));
  counted::pass(c, 0, 2);
  return {};
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto plane = static_cast<size_t>(c.shape(0).elements(2, c.shape(0).rank()));
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    c.add(0, i / plane, c.in(0)[i] / static_cast<double>(plane));
  }
  if (plane == 0) {
    std::ranges::fill(c.out(0), std::nan(""));
  }
}

// One sum, then a division, or a product with the rounded reciprocal.
Tolerance tolerance(ToleranceContext& c) {
  return Tolerance::of_reduction(c.in(0).elements(2, c.in(0).rank()), 2);
}

}  // namespace

extern const OpDef op_global_average_pool{
    .name = "GlobalAveragePool",
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::global_average_pool_op
