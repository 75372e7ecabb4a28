// Where: selects elements from two tensors.
//
//   y = condition ? a : b
//
// Shapes    condition bool, a and b of the same dtype. All three broadcast by the rules of NumPy
//           (aligned at the last axis, size 1 repeats); rank <= 8.
// Numerics  copies the bits of a or b. The value that is not selected has no effect, even if it is
//           NaN.
// Gradient  da = Where(condition, dy, 0) and db = Where(condition, 0, dy), each summed over its
//           broadcast axes.
#include "ops/elementwise.h"

namespace bowline::detail::where_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_TRY_ASSIGN(const Shape two, broadcast(c.in(0), c.in(1)));
  BOWLINE_TRY_ASSIGN(const Shape y, broadcast(two, c.in(2)));
  return c.out(0, y);
}

Status gradient(GradientContext& c) {
  // A scalar zero, which broadcasts.
  const GradientValue zero = filled(c, Shape{}, c.dtype(c.dout(0)), 0);
  if (c.needs(1)) {
    const GradientValue d = c.add1(Op::Where, {c.in(0), c.dout(0), zero});
    BOWLINE_TRY(c.din(1, summed_to(c, d, c.shape(c.in(1)))));
  }
  if (!c.needs(2)) {
    return {};
  }
  const GradientValue d = c.add1(Op::Where, {c.in(0), zero, c.dout(0)});
  return c.din(2, summed_to(c, d, c.shape(c.in(2))));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  for (Index i(c.out_shape(0)); i.valid(); i.next()) {
    const int taken = c.in(0)[i.in_broadcast(c.shape(0))] != 0 ? 1 : 2;
    c.out(0)[i.flat()] = c.in(taken)[i.in_broadcast(c.shape(taken))];
  }
}

}  // namespace

extern const OpDef op_where{
    .name = "Where",
    .inputs = 3,
    .types = "bool, A, A -> A",
    .infer = infer,
    .counted = counted::broadcast_all,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::where_op
