// ConvWeightGrad: the gradient of Conv with respect to its weight.
//
//   dweight[m, c, k] = sum over n, o of
//                      dy[n, m, o] * x[n, g * (C / groups) + c, o * stride + k * dilation - pad]
//
// Shapes    x [N, C, spatial...], dy [N, M, out...]  ->  dweight of the shape `dims` = [M, C /
//           groups, window...]. dy may have fewer windows than fit into x.
// Numerics  accumulated in f32, in an order that depends only on the shapes. As in Conv, padding
//           zeros are multiplied: an infinite or NaN dy makes every dweight NaN that multiplies it
//           with a pad.
// Gradient  none.
#include "ops/window.h"

namespace bowline::detail::conv_weight_grad_op {
namespace {

Status infer(InferContext& c) {
  const auto& t = c.attributes<ConvWeightGradAttributes>();
  BOWLINE_TRY_ASSIGN(const Shape weight, Shape::checked({t.dims()->data(), t.dims()->size()}));
  BOWLINE_TRY(check_convolution(t, c.in(0), weight, c.in(1)));
  return c.out(0, weight);
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto x = c.in(0), dy = c.in(1);
  each_product(
      convolution_of(c.attributes<ConvWeightGradAttributes>(), c.shape(0), c.out_shape(0),
                     c.shape(1)),
      [&](size_t i, size_t k, size_t o) { c.add(0, k, x[i] * dy[o]); },
      [&](size_t k, size_t o) { c.out(0)[k] += 0 * dy[o]; });
}

// A sum over the batch and the outputs.
Tolerance tolerance(ToleranceContext& c) {
  const Shape& dy = c.in(1);
  return Tolerance::of_reduction(dy[0] * dy.elements(2, dy.rank()), 1);
}

}  // namespace

extern const OpDef op_conv_weight_grad{
    .name = "ConvWeightGrad",
    .inputs = 2,
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::conv_weight_grad_op
