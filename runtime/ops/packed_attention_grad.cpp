// PackedAttentionGrad: the gradient of PackedAttention, from its results.
//
//   the heads of dqkv are dq, dk and dv of AttentionGrad
//
// Shapes    qkv [B, T, (Hq + 2 Hkv) D], out and dout [B, T, Hq, D], lse [B, Hq, T]  ->  dqkv of the
//           shape of qkv.
// Numerics  as AttentionGrad.
// Gradient  none.
// Source    AttentionGrad, Concat.
#include "ops/packed_attention.h"

namespace bowline::detail::packed_attention_grad_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_TRY_ASSIGN(const packed_attention::Heads heads, packed_attention::heads_of(c));
  BOWLINE_TRY(check_shape("out", c.in(1), "q", heads.q));
  BOWLINE_TRY(check_shape("lse", c.in(2), Shape{heads.q[0], heads.q[2], heads.q[1]}));
  BOWLINE_TRY(check_shape("dout", c.in(3), "q", heads.q));
  return c.out(0, c.in(0));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<PackedAttentionAttributes>();
  const packed_attention::Heads heads(t, c.shape(0));
  std::vector<OracleContext::Array> in = packed_attention::taken_apart(heads, c.in(0));
  for (const int i : {1, 2, 3}) {
    in.push_back(input_of(c, i));
  }
  const Reference r =
      reference_of(attention_grad_op::op_attention_grad, packed_attention::of_attention(t), in,
                   {heads.q, heads.k, heads.k});
  const auto magnitude = c.zero_magnitude(0);
  size_t at = 0;
  for (int64_t row = 0; row < heads.q[0] * heads.q[1]; ++row) {
    for (size_t part = 0; part < r.outputs.size(); ++part) {
      const Shape& s = r.outputs[part].shape;
      const auto length = static_cast<size_t>(s[2] * s[3]);
      const auto first = static_cast<size_t>(row) * length;
      for (size_t i = first; i < first + length; ++i, ++at) {
        c.out(0)[at] = r.outputs[part].values[i];
        magnitude[at] = r.magnitude[part][i];
      }
    }
  }
}

// As AttentionGrad.
Tolerance tolerance(ToleranceContext& c) {
  const auto& t = c.attributes<PackedAttentionAttributes>();
  const packed_attention::Heads heads(t, c.in(0));
  const int64_t queries = heads.q[1] * (t.heads() / t.kv_heads());
  return Tolerance::of_reduction(std::max(heads.q[3], queries), 8);
}

}  // namespace

extern const OpDef op_packed_attention_grad{
    .name = "PackedAttentionGrad",
    .inputs = 4,
    .is_fused = true,
    .types = "F, F, f32, F -> F",
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::packed_attention_grad_op
