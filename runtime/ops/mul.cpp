// Mul: the product of two tensors.
//
//   y = a * b
//
// Shapes    a and b broadcast by the rules of numpy (aligned at the last axis, 1 stretches), rank
//           <= 8.
// Gradient  da = dy * b, db = dy * a; summed over the axes that were broadcast.
// In place  on an input of the shape of the output.
#include <cmath>

#include "ops/build.h"
#include "ops/counted.h"
#include "ops/index.h"
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext& c) {
  BOWLINE_ASSIGN(const Shape y, broadcast(c.in(0), c.in(1)));
  return c.out(0, y);
}

Status gradient(GradientContext& c) {
  for (const int i : {0, 1}) {
    if (c.needs(i)) {
      const GradientValue d = c.add1(Op::Mul, {c.dout(0), c.in(1 - i)});
      BOWLINE_TRY(c.din(i, summed_to(c, d, c.shape(c.in(i)))));
    }
  }
  return {};
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto magnitude = c.zero_magnitude(0);
  for (Index i(c.out_shape(0)); i.valid(); i.next()) {
    const double a = c.in(0)[i.in_broadcast(c.shape(0))];
    const double b = c.in(1)[i.in_broadcast(c.shape(1))];
    c.out(0)[i.flat()] = a * b;
    magnitude[i.flat()] = std::abs(a * b);
  }
}

Tolerance tolerance(ToleranceContext&) { return Tolerance::of_roundings(1); }

}  // namespace

extern const OpDef op_mul;
const OpDef op_mul{
    .name = "Mul",
    .inputs = 2,
    .in_place = {{0, 0}, {0, 1}},
    .infer = infer,
    .counted = counted::broadcast,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline
