// InstanceNorm: normalizes every channel of every sample, then scales and shifts it.
//
//   y = (x - mean) / sqrt(variance + eps) * scale + bias, mean and variance over the spatial axes
//
// Shapes    x [N, C, spatial...] of rank >= 2, scale [C], bias [C]  ->  y of the shape of x.
// Domain    eps >= 1e-12. InstanceNorm is GroupNorm with one channel per group.
// Numerics  statistics in f32. The variance is biased and computed from the differences to the
//           mean. The kernels are those of GroupNorm.
// Gradient  GroupNormGrad.
// Differs   from PyTorch instance_norm: running statistics do not exist.
// Source    Ulyanov, Vedaldi, Lempitsky, "Instance Normalization", 2016; ONNX operators,
//           InstanceNormalization.
#include "ops/groups.h"

namespace bowline::detail::instance_norm_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_TRY(check_norm(c, c.attributes<InstanceNormAttributes>().eps()));
  return c.out(0, c.in(0));
}

Status gradient(GradientContext& c) {
  GroupNormAttributesT t;
  t.groups = std::max<int64_t>(c.shape(c.in(0))[1], 1);
  t.eps = c.attributes<InstanceNormAttributes>().eps();
  return group_norm_gradient(c, Attributes::of(t));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  group_norm_oracle(c, static_cast<size_t>(c.shape(0)[1]),
                    c.attributes<InstanceNormAttributes>().eps());
}

// Two sums over a channel, then four roundings: root, division, scale, shift.
Tolerance tolerance(ToleranceContext& c) {
  return Tolerance::of_reduction(c.in(0).elements(2, c.in(0).rank()), 4);
}

}  // namespace

extern const OpDef op_instance_norm{
    .name = "InstanceNorm",
    .inputs = 3,
    .infer = infer,
    .counted = counted_samples,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::instance_norm_op
