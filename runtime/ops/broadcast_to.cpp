// BroadcastTo: repeats a tensor along its axes of size 1 and along new leading axes.
//
//   y[i] = x[j], where j is i without the leading axes that x lacks, and 0 on axes of size 1
//
// Shapes    x that broadcasts to `dims` by the rules of NumPy  ->  y of the shape `dims`.
// Gradient  SumTo.
#include "ops/build.h"
#include "ops/index.h"
#include "ops/op.h"

namespace bowline::detail::broadcast_to_op {
namespace {

Status infer(InferContext& c) {
  const auto* dims = c.attributes<DimsAttributes>().dims();
  BOWLINE_TRY_ASSIGN(const Shape y, Shape::checked({dims->data(), dims->size()}));
  BOWLINE_TRY_ASSIGN(const Shape both, broadcast(c.in(0), y));
  BOWLINE_REQUIRE(both == y, "Shape {} does not broadcast to {}.", c.in(0), y);
  return c.out(0, y);
}

Status gradient(GradientContext& c) { return c.din(0, summed_to(c, c.dout(0), c.shape(c.in(0)))); }

[[maybe_unused]] void oracle(const OracleContext& c) {
  for (Index i(c.out_shape(0)); i.valid(); i.next()) {
    c.out(0)[i.flat()] = c.in(0)[i.in_broadcast(c.shape(0))];
  }
}

}  // namespace

extern const OpDef op_broadcast_to{
    .name = "BroadcastTo",
    .types = "A -> A",
    .infer = infer,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::broadcast_to_op
