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
  BOWLINE_REQUIRE(c.in(1) == r.result, "Shape of dy ({}) is not the shape of the products ({}).",
                  c.in(1), r.result);
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

// One rounding per factor, and two to multiply the parts before and behind the element with dy.
Tolerance tolerance(ToleranceContext& c) {
  const auto r = reduced(c.attributes<ReduceAttributes>(), c.in(0));
  return Tolerance::of_reduction(r.ok() ? r.value().length : 1, 2);
}

}  // namespace

extern const OpDef op_reduce_prod_grad{
    .name = "ReduceProdGrad",
    .inputs = 2,
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::reduce_prod_grad_op
