// PackedAttention: a fusion of Split with Attention, for projections that give q, k and v together.
//
//   (q, k, v) = the heads of qkv, in this order;  out, lse = Attention(q, k, v)
//
// Shapes    qkv [B, T, (Hq + 2 Hkv) D], with Hq = heads and Hkv = kv_heads  ->  out [B, T, Hq, D],
//           lse [B, Hq, T].
// Numerics  as Attention.
// Gradient  PackedAttentionGrad. lse must not contribute to the loss.
// Source    Split, Attention.
#include "ops/packed_attention.h"

namespace bowline::detail::packed_attention_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_TRY_ASSIGN(const packed_attention::Heads heads, packed_attention::heads_of(c));
  return c.out_each({heads.q, Shape{heads.q[0], heads.q[2], heads.q[1]}});
}

Status gradient(GradientContext& c) {
  BOWLINE_REQUIRE(!c.dout(1).valid(), "The loss depends on lse, which has no gradient.");
  return c.din(
      0, c.add1(Op::PackedAttentionGrad, {c.in(0), c.out(0), c.out(1), c.dout(0)}, c.attributes()));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<PackedAttentionAttributes>();
  const packed_attention::Heads heads(t, c.shape(0));
  const Reference r =
      reference_of(attention_op::op_attention, packed_attention::of_attention(t),
                   packed_attention::taken_apart(heads, c.in(0)), {heads.q, c.out_shape(1)});
  for (const int i : {0, 1}) {
    c.zero_magnitude(i);
    add_output(c, i, r, static_cast<size_t>(i));
  }
}

// As Attention.
Tolerance tolerance(ToleranceContext& c) {
  const packed_attention::Heads heads(c.attributes<PackedAttentionAttributes>(), c.in(0));
  return Tolerance::of_reduction(std::max(heads.q[3], heads.q[1]), 8);
}

}  // namespace

extern const OpDef op_packed_attention{
    .name = "PackedAttention",
    .inputs = 1,
    .outputs = 2,
    .is_fused = true,
    .costly = true,
    .types = "F -> F, f32",
    .infer = infer,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::packed_attention_op
