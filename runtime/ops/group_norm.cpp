// GroupNorm: normalizes groups of channels of every sample, then scales and shifts each channel.
//
//   y = (x - mean) / sqrt(variance + eps) * scale + bias
//   mean and variance over the C / groups channels of a group of one sample
//
// Shapes    x [N, C, spatial...] of rank >= 2, scale [C], bias [C]  ->  y of the shape of x. C is a
//           multiple of groups.
// Domain    eps >= 1e-12. If the deviations of a group from its mean are below the rounding of the
//           mean, the result is scaled rounding errors, as in LayerNorm.
// Numerics  statistics in f32. The variance is biased and computed from the differences to the
//           mean.
// Gradient  GroupNormGrad.
// Source    Wu and He, "Group Normalization", 2018; PyTorch group_norm; ONNX operators,
//           GroupNormalization (opset 21).
#include <cmath>

#include "ops/counted.h"
#include "ops/groups.h"

namespace bowline::detail::group_norm_op {
namespace {

Status infer(InferContext& c) {
  const auto& t = c.attributes<GroupNormAttributes>();
  BOWLINE_TRY(check_norm(c, t.eps()));
  BOWLINE_TRY(check_groups(c.in(0), t.groups()));
  return c.out(0, c.in(0));
}

Status gradient(GradientContext& c) { return group_norm_gradient(c, c.attributes()); }

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<GroupNormAttributes>();
  group_norm_oracle(c, static_cast<size_t>(t.groups()), t.eps());
}

// Two sums over a group, then four roundings: root, division, scale, shift.
Tolerance tolerance(ToleranceContext& c) {
  return Tolerance::of_reduction(
      c.in(0).elements(1, c.in(0).rank()) / c.attributes<GroupNormAttributes>().groups(), 4);
}

}  // namespace

extern const OpDef op_group_norm{
    .name = "GroupNorm",
    .inputs = 3,
    .infer = infer,
    .counted = counted_samples,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::group_norm_op
