// FusedConv: a fusion of Conv over one or two spatial axes with bias or BatchNorm, Add and Clip.
// The channels are the last axis.
//
//   y = clip(Conv(x, weight) + bias + addend), or
//   y = clip((Conv(x, weight) - mean) / sqrt(variance + eps) * scale + bias + addend)
//   clip(v) = v < min ? min : v > max ? max : v
//
// Shapes    x [N, spatial..., C], weight [M, C / groups, window...] packed by PackConvWeight, then
//           either bias [M], or scale [M], bias [M], mean [M], variance [M]; then optional addend
//           [N, spatial'..., M]  ->  y [N, spatial'..., M] with the spatial axes of Conv. The
//           number of inputs selects the form.
// Domain    groups is 1, or equal to the number of channels of x and of y. eps >= 1e-12. NaN stays
//           NaN.
// Step      training, which must be 0. The rewrite that replaces BatchNorm by this operator ensures
//           this.
// Numerics  accumulated in f32, with zeros around x as in Conv. The scale and shift of a channel
//           are computed once, in f32.
// Gradient  none. The operator occurs only in inference plans (graph/rewrites/convolution.cpp).
// Source    Conv and BatchNorm.
//! step training: u32 = 0
#include <cmath>

#include "core/packed_conv.h"
#include "ops/window.h"

namespace bowline::detail::fused_conv_op {
namespace {

// The form, decided by the number of inputs.
struct Form {
  explicit Form(int count)
      : normalises(count > 4),
        bias(normalises ? 3 : 2),
        addend(normalises ? 6 : 3),
        adds(count > addend) {}

  bool normalises;
  int bias, addend;  // inputs from 2 up to the addend have one element per channel
  bool adds;
};

// The shape of y with the channels first.
Result<Shape> slid(const FusedConvAttributes& t, const Shape& x, const Shape& packed,
                   int64_t outputs) {
  BOWLINE_REQUIRE(x.rank() == 3 || x.rank() == 4, "Input x ({}) has rank {}, not 3 or 4.", x,
                  x.rank());
  BOWLINE_REQUIRE(packed.rank() == x.rank() + 1 && packed.back() == kPackedOutputs &&
                      packed[0] == packed_blocks(outputs),
                  "The weight {} is not packed for {} channels.", packed, outputs);
  const Shape weight = unpacked(packed, outputs);
  BOWLINE_TRY(check_channels(x.back(), outputs, weight, t.groups()));
  BOWLINE_REQUIRE(t.groups() == 1 || (t.groups() == x.back() && t.groups() == outputs),
                  "{} groups are neither 1 nor equal to {} and {} channels.", t.groups(), x.back(),
                  outputs);
  return slid_over(t, channels_first(x), spatial_dims(weight), outputs);
}

Status infer(InferContext& c) {
  const auto& t = c.attributes<FusedConvAttributes>();
  BOWLINE_REQUIRE(c.inputs() != 5,
                  "5 inputs fit neither the form with a bias nor the form with a norm.");
  const Form form(c.inputs());
  BOWLINE_REQUIRE(c.in(2).rank() == 1, "Input 2 ({}) has rank {}, not 1.", c.in(2), c.in(2).rank());
  for (int i = 3; i < form.addend; ++i) {
    BOWLINE_TRY(check_shape(format("input {}", i), c.in(i), "a channel", c.in(2)));
  }
  BOWLINE_REQUIRE(t.eps() >= 1e-12f, "Eps {} is not at least 1e-12.", t.eps());
  BOWLINE_REQUIRE(t.min() <= t.max(), "The interval from {} to {} is empty.", t.min(), t.max());
  BOWLINE_TRY_ASSIGN(const Shape planes, slid(t, c.in(0), c.in(1), c.in(2)[0]));
  const Shape y = channels_last(planes);
  if (form.adds) {
    BOWLINE_TRY(check_shape("the addend", c.in(form.addend), y));
  }
  return c.out(0, y);
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<FusedConvAttributes>();
  const Form form(c.inputs());
  const int64_t outputs = c.out_shape(0).back();
  const Convolution convolution = packed_convolution(t, c.shape(0), c.shape(1), c.out_shape(0));
  const int64_t x_plane = convolution.windows.inputs(), y_plane = convolution.windows.outputs();
  const int64_t window = convolution.windows.window(), inputs = convolution.inputs;
  const auto y = c.out(0);
  const auto magnitude = c.zero_magnitude(0);
  // Converts a position in planes with the channels first to the position with the channels last.
  const auto last = [](int64_t at, int64_t channels, int64_t plane) {
    const int64_t sample = at / (channels * plane), channel = at / plane % channels;
    return static_cast<size_t>((sample * plane + at % plane) * channels + channel);
  };
  const auto packed = [&](int64_t at) {
    const int64_t m = at / (inputs * window), i = at / window % inputs, k = at % window;
    return static_cast<size_t>(((m / kPackedOutputs * window + k) * inputs + i) * kPackedOutputs +
                               m % kPackedOutputs);
  };
  const auto add = [&](double element, size_t k, size_t o) {
    const double product = element * c.in(1)[packed(static_cast<int64_t>(k))];
    y[last(static_cast<int64_t>(o), outputs, y_plane)] += product;
    magnitude[last(static_cast<int64_t>(o), outputs, y_plane)] += std::abs(product);
  };
  each_product(
      convolution,
      [&](size_t i, size_t k, size_t o) {
        add(c.in(0)[last(static_cast<int64_t>(i), c.shape(0).back(), x_plane)], k, o);
      },
      [&](size_t k, size_t o) { add(0, k, o); });
  const double low = t.min(), high = t.max();
  for (size_t o = 0; o < y.size(); ++o) {
    const size_t m = o % static_cast<size_t>(outputs);
    const double bias = c.in(form.bias)[m], addend = form.adds ? c.in(form.addend)[o] : 0;
    if (form.normalises) {
      const double factor = c.in(2)[m] / std::sqrt(c.in(5)[m] + static_cast<double>(t.eps()));
      y[o] = (y[o] - c.in(4)[m]) * factor;
      magnitude[o] = (magnitude[o] + std::abs(c.in(4)[m])) * std::abs(factor);
    }
    const double v = y[o] + bias + addend;
    y[o] = v < low ? low : v > high ? high : v;
    magnitude[o] += std::abs(bias) + std::abs(addend);
  }
}

// A sum over the window and the channels of a group; then root, division, two products, two sums,
// and the addend.
Tolerance tolerance(ToleranceContext& c) {
  return Tolerance::of_reduction(c.in(1).elements(1, c.in(1).rank() - 1), 7);
}

}  // namespace

extern const OpDef op_fused_conv{
    .name = "FusedConv",
    .inputs = 3,
    .optional_inputs = 4,
    .is_fused = true,
    .types = "f32 -> f32",
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::fused_conv_op
