// PackConvWeight: packs the weight of a convolution for FusedConv, in blocks of 32 output channels.
//
//   y[b, k, i, j] = x[32 b + j, i, k], or 0 if 32 b + j >= M; k is an element of the window
//
// Shapes    x [M, I, window...] of rank 3 to 5  ->  y [ceil(M / 32), window..., I, 32].
// Gradient  none. Only inference plans pack weights.
#include "core/packed_conv.h"
#include "ops/op.h"

namespace bowline::detail::pack_conv_weight_op {
namespace {

Status infer(InferContext& c) {
  const Shape& x = c.in(0);
  BOWLINE_REQUIRE(x.rank() >= 3 && x.rank() <= 5, "The weight ({}) has rank {}, outside 3 to 5.", x,
                  x.rank());
  return c.out(0, packed_shape(x));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const Shape& x = c.shape(0);
  const int64_t window = x.elements(2, x.rank());
  for (int64_t m = 0; m < x[0]; ++m) {
    for (int64_t i = 0; i < x[1]; ++i) {
      for (int64_t k = 0; k < window; ++k) {
        const int64_t block = m / kPackedOutputs, lane = m % kPackedOutputs;
        const int64_t at = ((block * window + k) * x[1] + i) * kPackedOutputs + lane;
        c.out(0)[static_cast<size_t>(at)] =
            c.in(0)[static_cast<size_t>((m * x[1] + i) * window + k)];
      }
    }
  }
}

}  // namespace

extern const OpDef op_pack_conv_weight{
    .name = "PackConvWeight",
    .is_fused = true,
    .derived_copy = DerivedCopy::packed,
    .types = "f32 -> f32",
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::pack_conv_weight_op
