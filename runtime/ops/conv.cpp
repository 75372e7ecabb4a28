// Conv: cross-correlation with a weight window, in groups of channels.
//
//   y[n, m, o] = bias[m] + sum over c, k of
//                x[n, g * (C / groups) + c, o * stride + k * dilation - pad] * weight[m, c, k]
//   with g = m / (M / groups). o, k, stride, dilation and pad have one entry per spatial axis.
//   x is zero outside of its shape.
//
// Shapes    x [N, C, spatial...] of rank 3, 4 or 5, weight [M, C / groups, window...], optional
//           bias [M]  ->  y [N, M, floor((spatial + pads - dilation * (window - 1) - 1) / stride) +
//           1 ...].
// Numerics  accumulated in f32. The padding zeros are multiplied like elements of x: if a weight is
//           infinite or NaN, every y whose window puts it on a pad is NaN.
// Gradient  ConvInputGrad and ConvWeightGrad. The gradient of the bias is the sum of dy over the
//           batch and the spatial axes.
// Differs   from ONNX Conv: auto_pad does not exist, and the window is the window of the weight.
// Source    PyTorch conv1d, conv2d, conv3d; ONNX operators, Conv.
#include "ops/window.h"

namespace bowline::detail::conv_op {
namespace {

Status infer(InferContext& c) {
  const auto& t = c.attributes<ConvAttributes>();
  const Shape& x = c.in(0);
  const Shape& weight = c.in(1);
  BOWLINE_TRY(check_weight(weight));
  BOWLINE_TRY_ASSIGN(const Shape y, slid_over(t, x, spatial_dims(weight), weight[0]));
  BOWLINE_TRY(check_channels(x[1], weight[0], weight, t.groups()));
  BOWLINE_TRY(check_bias(c, weight[0]));
  return c.out(0, y);
}

Status gradient(GradientContext& c) {
  const auto& t = c.attributes<ConvAttributes>();
  if (c.needs(0)) {
    BOWLINE_TRY(
        c.din(0, c.add1(Op::ConvInputGrad, {c.in(1), c.dout(0)},
                        gradient_attributes<ConvInputGradAttributesT>(t, c.shape(c.in(0))))));
  }
  if (c.needs(1)) {
    BOWLINE_TRY(
        c.din(1, c.add1(Op::ConvWeightGrad, {c.in(0), c.dout(0)},
                        gradient_attributes<ConvWeightGradAttributesT>(t, c.shape(c.in(1))))));
  }
  return c.inputs() > 2 && c.needs(2) ? c.din(2, bias_gradient(c, c.dout(0))) : Status();
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto x = c.in(0), weight = c.in(1);
  begin_with_bias(c);
  each_product(
      convolution_of(c.attributes<ConvAttributes>(), c.shape(0), c.shape(1), c.out_shape(0)),
      [&](size_t i, size_t k, size_t o) { c.add(0, o, x[i] * weight[k]); },
      [&](size_t k, size_t o) { c.out(0)[o] += 0 * weight[k]; });
}

// A sum over the window and the channels of a group, then the bias.
Tolerance tolerance(ToleranceContext& c) {
  return Tolerance::of_reduction(c.in(1).elements(1, c.in(1).rank()), 2);
}

}  // namespace

extern const OpDef op_conv{
    .name = "Conv",
    .inputs = 2,
    .optional_inputs = 1,
    .costly = true,
    .infer = infer,
    .counted = counted_in_front_of<1>,  // samples are independent
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::conv_op
