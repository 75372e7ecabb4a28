// SiluGrad: the gradient of Silu.
//
//   s = 1 / (1 + exp(-x)),  dx = dy * s * (1 + x * (1 - s))
//
// Shapes    x and dy of one shape  ->  dx of this shape.
// Gradient  none.
// In place  on x or dy.
#include <cmath>

#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext& c) {
  BOWLINE_REQUIRE(c.in(0) == c.in(1), "Shape of dy ({}) is not that of x ({}).", c.in(1), c.in(0));
  return c.out(0, c.in(0));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto magnitude = c.zero_magnitude(0);
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    const double x = c.in(0)[i];
    const double dy = c.in(1)[i];
    const double s = 1 / (1 + std::exp(-x));
    c.out(0)[i] = dy * s * (1 + x * (1 - s));
    magnitude[i] = std::abs(dy) * s * (1 + std::abs(x)) * (1 + (x < 0 ? -x : 0));
  }
}

// 1 - s cancels where x is large, 1 + x * (1 - s) near x = -1.28.
Tolerance tolerance(ToleranceContext&) { return Tolerance::of_roundings(8); }

}  // namespace

extern const OpDef op_silu_grad;
const OpDef op_silu_grad{
    .name = "SiluGrad",
    .inputs = 2,
    .in_place = {{0, 0}, {0, 1}},
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline
