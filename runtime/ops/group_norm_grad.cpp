// GroupNormGrad: the gradient of GroupNorm and InstanceNorm.
//
//   h = (x - mean) * s,  s = 1 / sqrt(variance + eps),  g = dy * scale
//   dx = s * (g - mean(g) - h * mean(g * h)), means over a group of one sample
//   dscale = sum of dy * h over the samples and the spatial axes,  dbias = the same sum of dy
//
// Shapes    x [N, C, spatial...], scale [C], dy of the shape of x  ->  dx of the shape of x, dscale
//           [C], dbias [C].
// Numerics  accumulated in f32. The kernel recomputes the statistics.
// Gradient  none.
#include "ops/groups.h"

namespace bowline::detail::group_norm_grad_op {
namespace {

Status infer(InferContext& c) {
  const Shape& x = c.in(0);
  BOWLINE_REQUIRE(x.rank() >= 2, "Input x has rank {}, below 2.", x.rank());
  BOWLINE_TRY(check_groups(x, c.attributes<GroupNormAttributes>().groups()));
  BOWLINE_REQUIRE(c.in(1) == Shape{x[1]},
                  "Shape of input 1 ({}) is not the shape of a channel ([{}]).", c.in(1), x[1]);
  BOWLINE_REQUIRE(c.in(2) == x, "Shape of dy ({}) is not the shape of x ({}).", c.in(2), x);
  BOWLINE_TRY(c.out(0, x));
  BOWLINE_TRY(c.out(1, c.in(1)));
  return c.out(2, c.in(1));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<GroupNormAttributes>();
  const Planes p = planes_of(c.shape(0));
  const size_t n = p.channels / static_cast<size_t>(t.groups()) * p.plane;
  const auto count = static_cast<double>(n);
  const auto dx_magnitude = c.zero_magnitude(0);
  const auto dscale_magnitude = c.zero_magnitude(1);
  const auto dbias_magnitude = c.zero_magnitude(2);
  for (size_t first = 0; first < c.in(0).size(); first += n) {
    const auto x = c.in(0).subspan(first, n);
    const auto dy = c.in(2).subspan(first, n);
    const Normal s = normal_of(x, t.eps());
    const auto scale = [&](size_t i) { return c.in(1)[(first + i) / p.plane % p.channels]; };
    double mean_g = 0, mean_gh = 0, size_g = 0, size_gh = 0;
    for (size_t i = 0; i < n; ++i) {
      const double g = dy[i] * scale(i) / count;
      mean_g += g;
      mean_gh += g * (x[i] - s.mean) * s.inverse;
      size_g += std::abs(g);
      size_gh += std::abs(g) * s.lost(x[i]);
    }
    for (size_t i = 0; i < n; ++i) {
      const size_t channel = (first + i) / p.plane % p.channels;
      const double h = (x[i] - s.mean) * s.inverse, g = dy[i] * scale(i);
      const double inner = g - mean_g - h * mean_gh;
      const double condition = 1 + 2 * std::sqrt(s.square) * s.inverse;
      c.out(0)[first + i] = s.inverse * inner;
      c.out(1)[channel] += dy[i] * h;
      c.out(2)[channel] += dy[i];
      dx_magnitude[first + i] =
          s.inverse * (std::abs(g) + size_g + s.lost(x[i]) * std::abs(mean_gh) +
                       std::abs(h) * size_gh + std::abs(inner) * condition);
      dscale_magnitude[channel] += std::abs(dy[i]) * s.lost(x[i]);
      dbias_magnitude[channel] += std::abs(dy[i]);
    }
  }
}

// dx: sums over a group. dscale and dbias: sums over the samples and the spatial axes.
Tolerance tolerance(ToleranceContext& c) {
  const Shape& x = c.in(0);
  const int64_t plane = x.elements(2, x.rank());
  const int64_t channels = x[1] / c.attributes<GroupNormAttributes>().groups();
  return Tolerance::of_reduction(std::max(channels, x[0]) * plane, 6);
}

}  // namespace

extern const OpDef op_group_norm_grad{
    .name = "GroupNormGrad",
    .inputs = 3,
    .outputs = 3,
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::group_norm_grad_op
