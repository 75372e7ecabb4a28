// ReduceSum: the sum over some axes.
//
//   y[kept axes] = sum of x over `axes`
//
// Shapes    x  ->  y without the reduced axes. With keep_dims, they remain with size 1. If `axes`
//           is empty, all axes are reduced.
// Numerics  accumulated in f32. Integers wrap around. The sum of no elements is 0.
// Gradient  BroadcastTo of dy.
#include <cmath>

#include "ops/counted.h"
#include "ops/elementwise.h"
#include "ops/index.h"
#include "ops/op.h"
#include "ops/reduced.h"

namespace bowline::detail::reduce_sum_op {
namespace {

Status gradient(GradientContext& c) {
  const Shape x = c.shape(c.in(0));
  BOWLINE_TRY_ASSIGN(const Reduced r, reduced(c.attributes<ReduceAttributes>(), x));
  return c.din(0, broadcast_to(c, reshaped(c, c.dout(0), r.kept), x));
}

Status counted_axes(CountedContext& c) { return mask_reduced(c, 0); }

[[maybe_unused]] void oracle(const OracleContext& c) {
  const Reduced r = reduced(c.attributes<ReduceAttributes>(), c.shape(0)).value();
  const auto magnitude = c.zero_magnitude(0);
  for (Index i(c.shape(0)); i.valid(); i.next()) {
    const size_t j = i.in_broadcast(r.kept);
    c.out(0)[j] = elementwise::wrapped(c.out(0)[j] + c.in(0)[i.flat()], c.dtype(0));
    magnitude[j] += std::abs(c.in(0)[i.flat()]);
  }
}

}  // namespace

extern const OpDef op_reduce_sum{
    .name = "ReduceSum",
    .stays_f32 = true,
    .types = "N -> N",
    .infer = infer_reduced,
    .counted = counted_axes,
    .gradient = gradient,
    .loss_terms = LossTerms::total,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = reduced_tolerance<0>,
};

}  // namespace bowline::detail::reduce_sum_op
