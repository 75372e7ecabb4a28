// ConvInputGrad: the gradient of Conv with respect to its input.
//
//   dx[n, c, i] = sum of dy[n, m, o] * weight[m, c', k]
//                 over m in the group of c, and o, k with i = o * stride + k * dilation - pad
//
// Shapes    weight [M, C / groups, window...], dy [N, M, out...]  ->  dx of the shape `dims` = [N,
//           C, spatial...]. dy may have fewer windows than fit into dx.
// Numerics  accumulated in f32. An infinite or NaN weight or dy reaches only the dx of which it is
//           a term.
// Gradient  none.
#include "ops/window.h"

namespace bowline::detail::conv_input_grad_op {
namespace {

Status infer(InferContext& c) {
  const auto& t = c.attributes<ConvInputGradAttributes>();
  BOWLINE_TRY_ASSIGN(const Shape dx, Shape::checked({t.dims()->data(), t.dims()->size()}));
  BOWLINE_TRY(check_convolution(t, dx, c.in(0), c.in(1)));
  return c.out(0, dx);
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto weight = c.in(0), dy = c.in(1);
  each_product(convolution_of(c.attributes<ConvInputGradAttributes>(), c.out_shape(0), c.shape(0),
                              c.shape(1)),
               [&](size_t i, size_t k, size_t o) { c.add(0, i, dy[o] * weight[k]); });
}

// At most one term per window element and channel of the group.
Tolerance tolerance(ToleranceContext& c) {
  const Shape& weight = c.in(0);
  const int64_t channels = weight[0] / c.attributes<ConvInputGradAttributes>().groups();
  return Tolerance::of_reduction(channels * weight.elements(2, weight.rank()), 1);
}

}  // namespace

extern const OpDef op_conv_input_grad{
    .name = "ConvInputGrad",
    .inputs = 2,
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::conv_input_grad_op
