// BatchNorm: normalises every channel over the batch, then scales and shifts it.
//
//   y = (x - mean) * inverse * scale + bias,  inverse = 1 / sqrt(variance + eps)
//   training 0   mean and variance are the running ones, which stay as they are
//   training 1   they are those of the channel, the variance biased; and with n the elements of a
//       channel
//                running_mean     += momentum * (mean - running_mean)
//                running_variance += momentum * (variance * n / (n - 1) - running_variance)
//
// Shapes    x [N, C, spatial...] of rank >= 2, scale [C], bias [C], running_mean [C],
//           running_variance [C]
//           ->  y of the shape of x, the running statistics after the step, mean [C], inverse [C]
//           (for BatchNormGrad).
// Domain    eps >= 1e-12. A channel of one element, while training: y = bias, the variance is 0 and
//           not divided by n - 1; PyTorch refuses it. Of no element: the running statistics stay. A
//           channel whose deviations from its mean are below the rounding of that mean gives scaled
//           rounding errors, as LayerNorm does.
// Step      training, as Dropout reads it.
// Updates   the storages of the running statistics, which are f32 whatever x is, and never trained
//           (StorageRole::running_statistic).
// Numerics  statistics in f32, the variance from the differences to the mean.
// Gradient  BatchNormGrad; nothing else may use the statistics that it leaves.
// Differs   from ONNX BatchNormalization (14 and later): the running variance is unbiased, as in
//           PyTorch; momentum is the part of the new statistics, there it is that of the old ones.
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
  BOWLINE_TRY(c.out(0, c.in(0)));
  for (const int o : {1, 2, 3, 4}) {
    BOWLINE_TRY(c.out(o, c.in(1)));
  }
  return {};
}

Status gradient(GradientContext& c) {
  for (const int o : {1, 2, 3, 4}) {
    BOWLINE_REQUIRE(!c.dout(o).valid(),
                    "A gradient reaches output {}, a statistic, which has none.", o);
  }
  const GradientValues d =
      c.add(Op::BatchNormGrad, {c.in(0), c.in(1), c.dout(0), c.out(3), c.out(4)}, c.attributes());
  for (int i = 0; i < 3; ++i) {
    BOWLINE_TRY(c.din(i, d.empty() ? GradientValue{} : d[static_cast<size_t>(i)]));
  }
  return {};
}

// The statistics are those of whole batches.
Status counted_axes(CountedContext& c) {
  return counted::none(c, 0, "the statistics are those of all elements");
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
      c.out(0)[at[i]] = (x[i] - s.mean) * s.inverse * scale + bias;
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
    // An error of the mean enters the variance squared.
    const double of_mean = s.square * (4 * std::sqrt(n) + 8) * std::ldexp(1.0, -24);
    magnitude[2][channel] = std::abs(old_variance) + part * (variance + of_mean);
    magnitude[3][channel] = training ? s.size : std::abs(s.mean);
    magnitude[4][channel] = s.inverse * (training ? 1 + 2 * std::sqrt(s.square) * s.inverse : 1);
  }
}

// Two sums over a channel; eight roundings after them: root, division, scale, shift, n / (n - 1),
// difference, part, sum.
Tolerance tolerance(ToleranceContext& c) {
  const Shape& x = c.in(0);
  return Tolerance::of_reduction(x[0] * x.elements(2, x.rank()), 8);
}

}  // namespace

extern const OpDef op_batch_norm;
const OpDef op_batch_norm{
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
