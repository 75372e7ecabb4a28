// ReduceProdGrad: the gradient of ReduceProd.
//
//   dx[i] = dy[kept axes] * product of the other elements of the same product
//
// Shapes    x, and dy of the shape of ReduceProd with the same attributes  ->  dx of the shape of
//           x.
// Numerics  without division: with one zero, only its element has a gradient; with two zeros, no
//           element has one.
// Gradient  none.
#include <cmath>

#include "ops/index.h"
#include "ops/op.h"
#include "ops/reduced.h"

namespace bowline::detail::reduce_prod_grad_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_TRY_ASSIGN(const Reduced r, reduced(c.attributes<ReduceAttributes>(), c.in(0)));
  BOWLINE_TRY(check_shape("dy", c.in(1), "the products", r.result));
  return c.out(0, c.in(0));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const Reduced r = reduced(c.attributes<ReduceAttributes>(), c.shape(0)).value();
  std::vector<std::vector<size_t>> factors(c.in(1).size());
  for (Index i(c.shape(0)); i.valid(); i.next()) {
    factors[i.in_broadcast(r.kept)].push_back(i.flat());
  }
  for (size_t o = 0; o < factors.size(); ++o) {
    for (const size_t i : factors[o]) {
      double product = 1;
      for (const size_t k : factors[o]) {
        product *= k == i ? 1 : c.in(0)[k];
      }
      c.out(0)[i] = c.in(1)[o] * product;
    }
  }
}

}  // namespace

extern const OpDef op_reduce_prod_grad{
    .name = "ReduceProdGrad",
    .inputs = 2,
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    // One rounding per factor, and two to multiply the parts before and behind the element with dy.
    .tolerance = reduced_tolerance<2>,
};

}  // namespace bowline::detail::reduce_prod_grad_op
