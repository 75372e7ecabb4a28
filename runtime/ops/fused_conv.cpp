// FusedConv: Conv over two spatial axes, BatchNorm with running statistics, Add and Clip in one, channels last.
//
//   y = clip((Conv(x, weight) - mean) / sqrt(variance + eps) * scale + bias + addend), clip(v) = v < min ? min : v > max ? max : v
//
// Shapes    x [N, H, W, C], weight as PackConvWeight makes it of [M, C / groups, window...], scale [M], bias [M], mean [M],
//           variance [M], addend [N, H', W', M] (optional)  ->  y [N, H', W', M], H' and W' those of Conv.
// Domain    groups are 1, or the channels are as many as groups and as outputs; eps >= 1e-12. A weight that is not finite adds
//           nothing or NaN where it meets the zeros around x. NaN stays NaN.
// Step      training, as BatchNorm reads it: it has to be 0, and whoever puts this operator in the place of BatchNorm holds that.
// Numerics  accumulated in f32; scale and shift of a channel are computed once, in f32.
// Gradient  none: a plan that only runs has this operator (graph/rewrites/convolution.cpp).
// Source    Conv and BatchNorm.
//! step training: u32 = 0
#include <cmath>

#include "core/packed_conv.h"
#include "ops/window.h"

namespace bowline::detail::fused_conv_op {
namespace {

// The shape of y with the channels first.
Result<Shape> slid(const FusedConvAttributes& t, const Shape& x, const Shape& packed,
                   int64_t outputs) {
  BOWLINE_REQUIRE(x.rank() == 4, "Input x ({}) has rank {}, not 4.", x, x.rank());
  BOWLINE_REQUIRE(
      packed.rank() == 5 && packed[4] == kPackedOutputs && packed[0] == packed_blocks(outputs),
      "A weight {} is not packed for {} channels.", packed, outputs);
  const Shape weight = unpacked(packed, outputs);
  BOWLINE_TRY(check_channels(x[3], outputs, weight, t.groups()));
  BOWLINE_REQUIRE(t.groups() == 1 || (t.groups() == x[3] && t.groups() == outputs),
                  "{} groups are neither one nor all of {} and {} channels.", t.groups(), x[3],
                  outputs);
  return slid_over(t, channels_first(x), spatial_dims(weight), outputs);
}

Status infer(InferContext& c) {
  const auto& t = c.attributes<FusedConvAttributes>();
  BOWLINE_REQUIRE(c.in(2).rank() == 1, "Input scale ({}) has rank {}, not 1.", c.in(2),
                  c.in(2).rank());
  for (int i = 3; i < 6; ++i) {
    BOWLINE_REQUIRE(c.in(i) == c.in(2), "Shape of input {} ({}) is not that of a channel ({}).", i,
                    c.in(i), c.in(2));
  }
  BOWLINE_REQUIRE(t.eps() >= 1e-12f, "Eps {} is not at least 1e-12.", t.eps());
  BOWLINE_REQUIRE(t.min() <= t.max(), "The interval from {} to {} holds no number.", t.min(),
                  t.max());
  BOWLINE_ASSIGN(const Shape planes, slid(t, c.in(0), c.in(1), c.in(2)[0]));
  const Shape y = channels_last(planes);
  if (c.inputs() > 6) {
    BOWLINE_REQUIRE(c.in(6) == y, "Shape of the addend ({}) is not {}.", c.in(6), y);
  }
  return c.out(0, y);
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<FusedConvAttributes>();
  const int64_t outputs = c.out_shape(0)[3];
  const Convolution convolution = packed_convolution(t, c.shape(0), c.shape(1), c.out_shape(0));
  const int64_t x_plane = convolution.windows.inputs(), y_plane = convolution.windows.outputs();
  const int64_t window = convolution.windows.window(), inputs = convolution.inputs;
  const auto y = c.out(0);
  const auto magnitude = c.zero_magnitude(0);
  // From where an element stands in a plane of each channel to where it stands with the channels last.
  const auto last = [](int64_t at, int64_t channels, int64_t plane) {
    const int64_t sample = at / (channels * plane), channel = at / plane % channels;
    return static_cast<size_t>((sample * plane + at % plane) * channels + channel);
  };
  const auto packed = [&](int64_t at) {
    const int64_t m = at / (inputs * window), i = at / window % inputs, k = at % window;
    return static_cast<size_t>(((m / kPackedOutputs * window + k) * inputs + i) * kPackedOutputs +
                               m % kPackedOutputs);
  };
  each_product(convolution, [&](size_t i, size_t k, size_t o) {
    const double product = c.in(0)[last(static_cast<int64_t>(i), c.shape(0)[3], x_plane)] *
                           c.in(1)[packed(static_cast<int64_t>(k))];
    y[last(static_cast<int64_t>(o), outputs, y_plane)] += product;
    magnitude[last(static_cast<int64_t>(o), outputs, y_plane)] += std::abs(product);
  });
  const double low = t.min(), high = t.max();
  for (size_t o = 0; o < y.size(); ++o) {
    const size_t m = o % static_cast<size_t>(outputs);
    const double factor = c.in(2)[m] / std::sqrt(c.in(5)[m] + static_cast<double>(t.eps()));
    const double addend = c.inputs() > 6 ? c.in(6)[o] : 0;
    const double v = (y[o] - c.in(4)[m]) * factor + c.in(3)[m] + addend;
    y[o] = v < low ? low : v > high ? high : v;
    magnitude[o] = (magnitude[o] + std::abs(c.in(4)[m])) * std::abs(factor) + std::abs(c.in(3)[m]) +
                   std::abs(addend);
  }
}

// A sum over the window and the channels of a group; root, division, two products, two sums, the addend.
Tolerance tolerance(ToleranceContext& c) {
  return Tolerance::of_reduction(c.in(1).elements(1, 4), 7);
}

}  // namespace

extern const OpDef op_fused_conv;
const OpDef op_fused_conv{
    .name = "FusedConv",
    .inputs = 6,
    .optional_inputs = 1,
    .is_fused = true,
    .types = "f32 -> f32",
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::fused_conv_op
