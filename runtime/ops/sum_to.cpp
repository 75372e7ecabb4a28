// SumTo: the reverse of BroadcastTo. Sums over the broadcast axes.
//
//   y[j] = sum of x[i] over all i to which j broadcasts
//
// Shapes    x, and `dims` that broadcast to the shape of x  ->  y of the shape `dims`.
// Numerics  accumulated in f32.
// Gradient  BroadcastTo.
#include "ops/build.h"
#include "ops/index.h"
#include "ops/op.h"

namespace bowline::detail::sum_to_op {
namespace {

Status infer(InferContext& c) {
  const auto* dims = c.attributes<DimsAttributes>().dims();
  BOWLINE_TRY_ASSIGN(const Shape y, Shape::checked({dims->data(), dims->size()}));
  BOWLINE_TRY_ASSIGN(const Shape both, broadcast(y, c.in(0)));
  BOWLINE_REQUIRE(both == c.in(0), "Shape {} is not a broadcast of {}.", c.in(0), y);
  return c.out(0, y);
}

Status gradient(GradientContext& c) {
  return c.din(0, broadcast_to(c, c.dout(0), c.shape(c.in(0))));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  for (Index i(c.shape(0)); i.valid(); i.next()) {
    c.add(0, i.in_broadcast(c.out_shape(0)), c.in(0)[i.flat()]);
  }
}

Tolerance tolerance(ToleranceContext& c) {
  const auto* dims = c.attributes<DimsAttributes>().dims();
  int64_t length = c.in(0).elements();
  for (flatbuffers::uoffset_t a = 0; dims != nullptr && a < dims->size(); ++a) {
    length /= std::max<int64_t>(dims->Get(a), 1);
  }
  return Tolerance::of_reduction(length, 0);
}

}  // namespace

extern const OpDef op_sum_to{
    .name = "SumTo",
    .infer = infer,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::sum_to_op
