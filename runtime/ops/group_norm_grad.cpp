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
  BOWLINE_TRY(check_shape("input 1", c.in(1), "a channel", Shape{x[1]}));
  BOWLINE_TRY(check_shape("dy", c.in(2), "x", x));
  return c.out_each({x, c.in(1), c.in(1)});
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<GroupNormAttributes>();
  const Planes p = planes_of(c.shape(0));
  const size_t n = p.channels / static_cast<size_t>(t.groups()) * p.plane;
  normal_gradient(c, n, t.eps(), [p](size_t i) { return i / p.plane % p.channels; });
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
