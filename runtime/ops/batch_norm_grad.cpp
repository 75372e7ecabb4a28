// BatchNormGrad: the gradient of BatchNorm.
//
//   h = (x - mean) * inverse
//   training 0   dx = scale * inverse * dy
//   training 1   dx = scale * inverse * (dy - mean(dy) - h * mean(dy * h)), means over the channel
//   dscale = sum over the channel of dy * h,  dbias = sum over the channel of dy
//
// Shapes    x [N, C, spatial...], scale [C], dy of the shape of x, mean [C] and inverse [C] from
//           BatchNorm  ->  dx of the shape of x, dscale [C], dbias [C].
// Step      training, with the value that BatchNorm read.
// In place  dx on dy or x.
// Numerics  accumulated in f32.
// Gradient  none.
//! step training: u32 = 0
#include <cmath>

#include "ops/channels.h"

namespace bowline::detail::batch_norm_grad_op {
namespace {

Status infer(InferContext& c) {
  const Shape& x = c.in(0);
  BOWLINE_REQUIRE(x.rank() >= 2, "Input x has rank {}, below 2.", x.rank());
  BOWLINE_TRY(check_shape("dy", c.in(2), "x", x));
  for (const int i : {1, 3, 4}) {
    BOWLINE_TRY(check_shape(format("input {}", i), c.in(i), "a channel", Shape{x[1]}));
  }
  return c.out_each({x, c.in(1), c.in(1)});
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const Planes p = planes_of(c.shape(0));
  const auto n = static_cast<double>(p.batch * p.plane);
  const bool training = c.step(step::batch_norm_grad::training) != 0;
  const auto dx_magnitude = c.zero_magnitude(0);
  const auto dscale_magnitude = c.zero_magnitude(1);
  const auto dbias_magnitude = c.zero_magnitude(2);
  for (size_t channel = 0; channel < p.channels; ++channel) {
    const double scale = c.in(1)[channel], mean = c.in(3)[channel], inverse = c.in(4)[channel];
    const auto each = [&](auto f) {
      for (size_t b = 0; b < p.batch; ++b) {
        for (size_t i = 0; i < p.plane; ++i) {
          const size_t at = (b * p.channels + channel) * p.plane + i;
          const double x = c.in(0)[at];
          f(at, c.in(2)[at], (x - mean) * inverse,
            (std::abs(x) + std::abs(mean)) * std::abs(inverse));
        }
      }
    };
    double& dscale = c.out(1)[channel];
    double& dbias = c.out(2)[channel];
    each([&](size_t, double dy, double h, double lost) {
      dscale += dy * h;
      dbias += dy;
      dscale_magnitude[channel] += std::abs(dy) * lost;
      dbias_magnitude[channel] += std::abs(dy);
    });
    each([&](size_t at, double dy, double h, double lost) {
      const double size = std::abs(scale * inverse);
      c.out(0)[at] = scale * inverse * (training ? dy - dbias / n - h * dscale / n : dy);
      dx_magnitude[at] = size * std::abs(dy);
      if (training) {
        dx_magnitude[at] += size *
                            (dbias_magnitude[channel] + lost * std::abs(dscale) +
                             std::abs(h) * dscale_magnitude[channel]) /
                            n;
      }
    });
  }
}

// Sums over the channel, then six roundings.
Tolerance tolerance(ToleranceContext& c) {
  const Shape& x = c.in(0);
  return Tolerance::of_reduction(x[0] * x.elements(2, x.rank()), 6);
}

}  // namespace

extern const OpDef op_batch_norm_grad{
    .name = "BatchNormGrad",
    .inputs = 5,
    .outputs = 3,
    .types = "F, F, F, f32, f32 -> F",
    .in_place = {{0, 2}, {0, 0}},
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::batch_norm_grad_op
