// Add: the sum of two tensors.
//
//   y = a + b
//
// Shapes    a and b broadcast by the rules of numpy (aligned at the last axis, 1 stretches), rank
//           <= 8.
// Gradient  da = dy, db = dy; summed over the axes that were broadcast.
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
  BOWLINE_TRY(c.din(0, summed_to(c, c.dout(0), c.shape(c.in(0)))));
  return c.din(1, summed_to(c, c.dout(0), c.shape(c.in(1))));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto magnitude = c.zero_magnitude(0);
  for (Index i(c.out_shape(0)); i.valid(); i.next()) {
    const double a = c.in(0)[i.in_broadcast(c.shape(0))];
    const double b = c.in(1)[i.in_broadcast(c.shape(1))];
    c.out(0)[i.flat()] = a + b;
    magnitude[i.flat()] = std::abs(a + b);
  }
}

Tolerance tolerance(ToleranceContext&) { return Tolerance::of_roundings(1); }

}  // namespace

extern const OpDef op_add;
const OpDef op_add{
    .name = "Add",
    .inputs = 2,
    .is_sum = true,
    .in_place = {{0, 0}, {0, 1}},
    .infer = infer,
    .counted = counted::broadcast,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline
