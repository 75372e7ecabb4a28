// ConvTranspose: the transpose of Conv, which is the gradient of Conv with respect to its input.
//
//   y[n, g * (M / groups) + m, i] = bias + sum of x[n, c, o] * weight[c, m, k]
//       over the c in group g, and all o, k with i = o * stride + k * dilation - pad
//
// Shapes    x [N, C, spatial...] of rank 3, 4 or 5, weight [C, M / groups, window...], optional
//           bias [M]  ->  y [N, M, (spatial - 1) * stride - pads + dilation * (window - 1) +
//           output_padding + 1 ...].
// Domain    output_padding is smaller than the stride or the dilation. Conv maps several sizes to
//           the size of x; output_padding selects one of these sizes.
// Numerics  accumulated in f32, with the kernels of ConvInputGrad. An infinite or NaN weight or x
//           reaches only the y of which it is a term.
// Gradient  for x, Conv of dy, cut to the shape of x. For the weight, ConvWeightGrad with dy as the
//           input. For the bias, the sum of dy.
// Differs   from ONNX ConvTranspose: auto_pad and output_shape do not exist.
// Source    PyTorch conv_transpose1d, 2d, 3d; ONNX operators, ConvTranspose.
#include "ops/build.h"
#include "ops/window.h"

namespace bowline::detail::conv_transpose_op {
namespace {

Status infer(InferContext& c) {
  const auto& t = c.attributes<ConvTransposeAttributes>();
  const Shape& x = c.in(0);
  const Shape& weight = c.in(1);
  BOWLINE_TRY(check_weight(weight));
  BOWLINE_TRY(check_windows(t, x, spatial_dims(weight)));
  const int spatial = x.rank() - 2;
  BOWLINE_TRY(check_sizes("output paddings", *t.output_padding(), static_cast<size_t>(spatial), 0));
  const int64_t groups = t.groups();
  BOWLINE_REQUIRE(groups >= 1, "The number of groups is {}, not at least 1.", groups);
  BOWLINE_REQUIRE(weight[1] <= kMaxDim / groups, "{} groups of {} channels are too many.", groups,
                  weight[1]);
  BOWLINE_TRY(check_channels(weight[1] * groups, x[1], weight, groups));
  const Windows w = windows_of(t, x, spatial_dims(weight), x);
  Shape y{x[0], weight[1] * groups};
  for (int a = 0; a < spatial; ++a) {
    const WindowAxis& axis = w.axis[static_cast<size_t>(kMostSpatial - spatial + a)];
    const int64_t more = t.output_padding()->size() == 0
                             ? 0
                             : t.output_padding()->Get(static_cast<flatbuffers::uoffset_t>(a));
    BOWLINE_REQUIRE(more < std::max(axis.stride, axis.dilation),
                    "An output padding of {} is not below the stride {} or the dilation {}.", more,
                    axis.stride, axis.dilation);
    const int64_t padded = (axis.in - 1) * axis.stride + axis.reach() + more;
    const int64_t size = padded - axis.pad - axis.pad_end;
    BOWLINE_REQUIRE(axis.in >= 1 && size >= 1 && padded <= kMaxDim,
                    "Spatial axis {} of {} elements would become {}, with pads {}.", a, axis.in,
                    size, padded);
    y.push_back(size);
  }
  BOWLINE_TRY(check_bias(c, y[1]));
  return c.out(0, y);
}

// Output padding of at least one stride, which a larger dilation allows, makes more windows fit
// than x has elements.
GradientValue without_rest(GradientContext& c, GradientValue v, const Shape& x) {
  for (int a = 2; a < x.rank() && v.valid(); ++a) {
    if (c.shape(v)[a] != x[a]) {
      v = sliced(c, v, a, 0, x[a]);
    }
  }
  return v;
}

Status gradient(GradientContext& c) {
  const auto& t = c.attributes<ConvTransposeAttributes>();
  if (c.needs(0)) {
    ConvAttributesT conv;
    conv.strides = listed(*t.strides());
    conv.pads = listed(*t.pads());
    conv.dilations = listed(*t.dilations());
    conv.groups = t.groups();
    const GradientValue all = c.add1(Op::Conv, {c.dout(0), c.in(1)}, Attributes::of(conv));
    BOWLINE_TRY(c.din(0, without_rest(c, all, c.shape(c.in(0)))));
  }
  if (c.needs(1)) {
    BOWLINE_TRY(
        c.din(1, c.add1(Op::ConvWeightGrad, {c.dout(0), c.in(0)},
                        gradient_attributes<ConvWeightGradAttributesT>(t, c.shape(c.in(1))))));
  }
  return c.inputs() > 2 && c.needs(2) ? c.din(2, bias_gradient(c, c.dout(0))) : Status();
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto x = c.in(0), weight = c.in(1);
  begin_with_bias(c);
  each_product(convolution_of(c.attributes<ConvTransposeAttributes>(), c.out_shape(0), c.shape(1),
                              c.shape(0)),
               [&](size_t i, size_t k, size_t o) { c.add(0, i, x[o] * weight[k]); });
}

// At most one term per window element and channel of the group, then the bias.
Tolerance tolerance(ToleranceContext& c) {
  const Shape& weight = c.in(1);
  const int64_t channels = weight[0] / c.attributes<ConvTransposeAttributes>().groups();
  return Tolerance::of_reduction(channels * weight.elements(2, weight.rank()), 2);
}

}  // namespace

extern const OpDef op_conv_transpose{
    .name = "ConvTranspose",
    .inputs = 2,
    .optional_inputs = 1,
    .costly = true,
    .infer = infer,
    .counted = counted_in_front_of<1>,  // samples are independent
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::conv_transpose_op
