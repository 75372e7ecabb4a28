// FusedNormGrad: a fusion of LayerNormGrad or RmsNormGrad with an Add.
//
//   dx = addend + (dx of LayerNormGrad or RmsNormGrad);  dgamma and dbeta are those of this
//   operator
//
// Shapes    x [..., n], gamma [n], dy and addend [..., n]  ->  dx [..., n], dgamma [n], and dbeta
//           [n] unless `rms`.
// Numerics  accumulated in f32; dx is rounded once.
// Gradient  none: graphs are rewritten after differentiation (graph/rewrites/norms.cpp).
// Source    LayerNormGrad, RmsNormGrad, Add.
#include "ops/reference.h"

namespace bowline::detail {

namespace layer_norm_grad_op {
extern const OpDef op_layer_norm_grad;
}
namespace rms_norm_grad_op {
extern const OpDef op_rms_norm_grad;
}

namespace fused_norm_grad_op {
namespace {

int count_outputs(const Attributes& attributes) {
  return attributes.as<FusedNormGradAttributes>().rms() ? 2 : 3;
}

Status infer(InferContext& c) {
  const Shape& x = c.in(0);
  BOWLINE_REQUIRE(x.rank() >= 1, "Input x has rank 0.");
  const Shape row{x.back()};
  BOWLINE_TRY(check_shape("gamma", c.in(1), "a row", row));
  BOWLINE_TRY(check_shape("dy", c.in(2), "x", x));
  BOWLINE_TRY(check_shape("the addend", c.in(3), "x", x));
  return c.attributes<FusedNormGradAttributes>().rms() ? c.out_each({x, row})
                                                       : c.out_each({x, row, row});
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<FusedNormGradAttributes>();
  LayerNormAttributesT layer;
  layer.eps = t.eps();
  RmsNormAttributesT rms;
  rms.eps = t.eps();
  std::vector<Shape> shapes = {c.shape(0), c.shape(1), c.shape(1)};
  shapes.resize(t.rms() ? 2 : 3);
  const Reference norm = reference_of(
      t.rms() ? rms_norm_grad_op::op_rms_norm_grad : layer_norm_grad_op::op_layer_norm_grad,
      t.rms() ? Attributes::of(rms) : Attributes::of(layer),
      {input_of(c, 0), input_of(c, 1), input_of(c, 2)}, shapes);
  for (size_t i = 0; i < shapes.size(); ++i) {
    c.zero_magnitude(static_cast<int>(i));
    add_output(c, static_cast<int>(i), norm, i);
  }
  for (size_t i = 0; i < c.in(3).size(); ++i) {
    c.add(0, i, c.in(3)[i]);
  }
}

// dx: sums over the row. dgamma and dbeta: sums over the rows.
Tolerance tolerance(ToleranceContext& c) {
  return Tolerance::of_reduction(std::max(c.in(0).back(), c.in(0).rows()), 8);
}

}  // namespace

extern const OpDef op_fused_norm_grad{
    .name = "FusedNormGrad",
    .inputs = 4,
    .outputs = 3,
    .count_outputs = count_outputs,
    .is_fused = true,
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace fused_norm_grad_op
}  // namespace bowline::detail
