// LayerNormGrad: the gradient of LayerNorm.
//
//   s = 1 / sqrt(var(x) + eps),  h = (x - mean(x)) * s,  g = dy * gamma
//   dx = s * (g - mean(g) - h * mean(g * h))
//   dgamma = sum of dy * h over rows,  dbeta = sum of dy over rows
//
// Shapes    x [..., n], gamma [n], dy [..., n]  ->  dx [..., n], dgamma [n], dbeta [n].
// Numerics  accumulated in f32.
// Gradient  none.
#include "ops/normal.h"

namespace bowline::detail::layer_norm_grad_op {
namespace {

Status infer(InferContext& c) {
  const Shape& x = c.in(0);
  BOWLINE_REQUIRE(x.rank() >= 1, "Input x has rank 0.");
  const Shape row{x.back()};
  BOWLINE_TRY(check_shape("gamma", c.in(1), "a row", row));
  BOWLINE_TRY(check_shape("dy", c.in(2), "x", x));
  return c.out_each({x, row, row});
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const size_t n = c.last_axis(0);
  normal_gradient(c, n, c.attributes<LayerNormAttributes>().eps(), [n](size_t i) { return i % n; });
}

// dx: sums over the row. dgamma and dbeta: sums over the rows.
Tolerance tolerance(ToleranceContext& c) {
  return Tolerance::of_reduction(std::max(c.in(0).back(), c.in(0).rows()), 6);
}

}  // namespace

extern const OpDef op_layer_norm_grad{
    .name = "LayerNormGrad",
    .inputs = 3,
    .outputs = 3,
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::layer_norm_grad_op
