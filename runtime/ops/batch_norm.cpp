// BatchNorm: normalizes every channel over the batch, then scales and shifts it.
//
//   y = (x - mean) * inverse * scale + bias,  inverse = 1 / sqrt(variance + eps)
//   training 0   mean and variance are the running statistics, which do not change
//   training 1   mean and variance are those of the channel in this batch, the variance biased;
//                with n elements per channel
//                running_mean     += momentum * (mean - running_mean)
//                running_variance += momentum * (variance * n / (n - 1) - running_variance)
//
// Shapes    x [N, C, spatial...] of rank >= 2, scale [C], bias [C], running_mean [C],
//           running_variance [C]  ->  y of the shape of x, the updated running statistics, mean
//           [C], inverse [C] (for BatchNormGrad).
// Domain    eps >= 1e-12. While training, a channel with one element gives y = bias and the
//           variance 0, which is not divided by n - 1; PyTorch refuses it. A channel with no
//           element leaves the running statistics as they are. If the deviations of a channel from
//           its mean are below the rounding of the mean, the result is scaled rounding errors, as
//           in LayerNorm.
// Step      training. Dropout reads the same per-step scalar.
// Updates   the storages of the running statistics. They are f32 whatever dtype x has, and are
//           never trained (StorageRole::running_statistic).
// Numerics  statistics in f32. The variance is computed from the differences to the mean.
// Gradient  BatchNormGrad. The loss must not depend on mean and inverse in another way.
// Differs   from ONNX BatchNormalization (14 and later): the running variance is unbiased, as in
//           PyTorch. momentum is the weight of the new statistics; in ONNX it is the weight of the
//           old statistics.
// Source    Ioffe and Szegedy, "Batch Normalization", 2015; PyTorch BatchNorm2d.
//! step training: u32 = 0
#include <cmath>

#include "ops/channels.h"
#include "ops/counted.h"

namespace bowline::detail::batch_norm_op {
namespace {

Status infer(InferContext& c) {
  const auto& t = c.attributes<BatchNormAttributes>();
  BOWLINE_TRY(check_norm(c, t.eps()));
  BOWLINE_REQUIRE(t.momentum() >= 0 && t.momentum() <= 1, "Momentum {} lies outside [0, 1].",
                  t.momentum());
  return c.out_each({c.in(0), c.in(1), c.in(1), c.in(1), c.in(1)});
}

Status gradient(GradientContext& c) {
  for (const int o : {1, 2, 3, 4}) {
    BOWLINE_REQUIRE(!c.dout(o).valid(),
                    "The loss depends on output {}, a statistic without a gradient.", o);
  }
  return c.din_each(
      c.add(Op::BatchNormGrad, {c.in(0), c.in(1), c.dout(0), c.out(3), c.out(4)}, c.attributes()));
}

// The statistics cover whole batches.
Status counted_axes(CountedContext& c) {
  return counted::none(c, 0, "the statistics need all elements");
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<BatchNormAttributes>();
  const double eps = t.eps(), momentum = t.momentum();
  const Planes p = planes_of(c.shape(0));
  const auto n = static_cast<double>(p.batch * p.plane);
  const bool training = c.step(step::batch_norm::training) != 0;
  std::vector<std::span<double>> magnitude;
  for (const int o : {0, 1, 2, 3, 4}) {
    magnitude.push_back(c.zero_magnitude(o));
  }
  for (size_t channel = 0; channel < p.channels; ++channel) {
    const double scale = c.in(1)[channel], bias = c.in(2)[channel];
    const double old_mean = c.in(3)[channel], old_variance = c.in(4)[channel];
    std::vector<size_t> at;
    std::vector<double> x;
    for (size_t b = 0; b < p.batch; ++b) {
      for (size_t i = 0; i < p.plane; ++i) {
        at.push_back((b * p.channels + channel) * p.plane + i);
        x.push_back(c.in(0)[at.back()]);
      }
    }
    Normal s = normal_of(x, eps);
    if (!training) {
      s.mean = old_mean;
      s.inverse = 1 / std::sqrt(old_variance + eps);
    }
    for (size_t i = 0; i < x.size(); ++i) {
      c.out(0)[at[i]] = s.of(x[i]) * scale + bias;
      const double lost = training ? s.lost(x[i]) : (std::abs(x[i]) + std::abs(s.mean)) * s.inverse;
      magnitude[0][at[i]] = lost * std::abs(scale) + std::abs(bias);
    }
    const double part = training && n > 0 ? momentum : 0;
    const double variance = s.variance * n / std::max(n - 1, 1.0);
    c.out(1)[channel] = part == 0 ? old_mean : old_mean + part * (s.mean - old_mean);
    c.out(2)[channel] = part == 0 ? old_variance : old_variance + part * (variance - old_variance);
    c.out(3)[channel] = s.mean;
    c.out(4)[channel] = s.inverse;
    magnitude[1][channel] = std::abs(old_mean) + part * s.size;
    // The square of the error of the mean is part of the error of the variance.
    const double of_mean = s.square * (4 * std::sqrt(n) + 8) * std::ldexp(1.0, -24);
    magnitude[2][channel] = std::abs(old_variance) + part * (variance + of_mean);
    magnitude[3][channel] = training ? s.size : std::abs(s.mean);
    magnitude[4][channel] = s.inverse * (training ? s.condition() : 1);
  }
}

// Two sums over a channel, then eight roundings: root, division, scale, shift, n / (n - 1),
// difference, product with momentum, sum.
Tolerance tolerance(ToleranceContext& c) {
  const Shape& x = c.in(0);
  return Tolerance::of_reduction(x[0] * x.elements(2, x.rank()), 8);
}

}  // namespace

extern const OpDef op_batch_norm{
    .name = "BatchNorm",
    .inputs = 5,
    .outputs = 5,
    .types = "F, F, F, f32, f32 -> F, f32",
    .updates = {{1, 3}, {2, 4}},
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::batch_norm_op
