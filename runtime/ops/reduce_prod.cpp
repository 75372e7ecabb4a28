// ReduceProd: the product over some axes.
//
//   y[kept axes] = product of x over `axes`
//
// Shapes    x  ->  y without the reduced axes. With keep_dims, they remain with size 1. If `axes`
//           is empty, all axes are reduced.
// Numerics  computed in f32 for floats; partial products can overflow. Integers wrap around. The
//           product of no elements is 1.
// Gradient  ReduceProdGrad.
#include <cmath>

#include "ops/counted.h"
#include "ops/elementwise.h"
#include "ops/index.h"
#include "ops/op.h"
#include "ops/reduced.h"

namespace bowline::detail::reduce_prod_op {
namespace {

Status gradient(GradientContext& c) {
  return c.din(0, c.add1(Op::ReduceProdGrad, {c.in(0), c.dout(0)}, c.attributes()));
}

Status counted_axes(CountedContext& c) { return mask_reduced(c, 1); }

[[maybe_unused]] void oracle(const OracleContext& c) {
  const Reduced r = reduced(c.attributes<ReduceAttributes>(), c.shape(0)).value();
  std::ranges::fill(c.out(0), 1.0);
  for (Index i(c.shape(0)); i.valid(); i.next()) {
    double& y = c.out(0)[i.in_broadcast(r.kept)];
    y = elementwise::wrapped(y * c.in(0)[i.flat()], c.dtype(0));
  }
}

}  // namespace

extern const OpDef op_reduce_prod{
    .name = "ReduceProd",
    .types = "N -> N",
    .infer = infer_reduced,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    // One rounding per factor. The error grows as in a sum.
    .tolerance = reduced_tolerance<0>,
};

}  // namespace bowline::detail::reduce_prod_op
