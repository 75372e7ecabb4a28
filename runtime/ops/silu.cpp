// Silu: x times its logistic sigmoid.
//
//   y = x / (1 + exp(-x))
//
// Shapes    any x  ->  y of the shape of x.
// Gradient  SiluGrad.
// In place  on x.
// Source    Elfwing, Uchibe, Doya, "Sigmoid-Weighted Linear Units", 2018.
#include <cmath>

#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext& c) { return c.out(0, c.in(0)); }

Status gradient(GradientContext& c) { return c.din(0, c.add1(Op::SiluGrad, {c.in(0), c.dout(0)})); }

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto magnitude = c.zero_magnitude(0);
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    const double x = c.in(0)[i];
    const double y = x / (1 + std::exp(-x));
    c.out(0)[i] = y;
    magnitude[i] = std::abs(y) * (1 + (x < 0 ? -x : 0));
  }
}

// The argument of exp is rounded, which costs |x| roundings of exp(x) where x is negative.
Tolerance tolerance(ToleranceContext&) { return Tolerance::of_roundings(8); }

}  // namespace

extern const OpDef op_silu;
const OpDef op_silu{
    .name = "Silu",
    .in_place = {{0, 0}},
    .infer = infer,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline
