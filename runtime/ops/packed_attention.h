// The heads of PackedAttention, and its attributes as those of Attention.
#pragma once

#include "ops/reference.h"

namespace bowline::detail {

namespace attention_op {
extern const OpDef op_attention;
}
namespace attention_grad_op {
extern const OpDef op_attention_grad;
}

namespace packed_attention {

// The shapes of q, and of k and v.
struct Heads {
  Heads(const PackedAttentionAttributes& t, const Shape& qkv) {
    const int64_t dim = qkv[2] / (t.heads() + 2 * t.kv_heads());
    q = Shape{qkv[0], qkv[1], t.heads(), dim};
    k = Shape{qkv[0], qkv[1], t.kv_heads(), dim};
  }
  Shape q, k;
};

inline Result<Heads> heads_of(const InferContext& c) {
  const auto& t = c.attributes<PackedAttentionAttributes>();
  const Shape& qkv = c.in(0);
  BOWLINE_REQUIRE(qkv.rank() == 3, "Input qkv has rank {}, not 3.", qkv.rank());
  BOWLINE_REQUIRE(t.kv_heads() >= 1 && t.heads() >= 1 && t.heads() % t.kv_heads() == 0,
                  "{} query heads are not a multiple of {} key heads, or there are none.",
                  t.heads(), t.kv_heads());
  const int64_t all = t.heads() + 2 * t.kv_heads();
  BOWLINE_REQUIRE(qkv[2] > 0 && qkv[2] % all == 0, "Rows of {} elements are not {} heads.", qkv[2],
                  all);
  BOWLINE_REQUIRE(t.softcap() >= 0, "The softcap {} is negative.", t.softcap());
  BOWLINE_REQUIRE(t.window() == 0 || t.causal(), "A window of {} keys requires causal attention.",
                  t.window());
  return Heads(t, qkv);
}

inline Attributes of_attention(const PackedAttentionAttributes& t) {
  AttentionAttributesT out;
  out.causal = t.causal();
  out.scale = t.scale();
  out.softcap = t.softcap();
  out.window = t.window();
  return Attributes::of(out);
}

// q, k and v of qkv.
inline std::vector<OracleContext::Array> taken_apart(const Heads& heads,
                                                     std::span<const double> qkv) {
  std::vector<OracleContext::Array> out = {{heads.q, {}}, {heads.k, {}}, {heads.k, {}}};
  for (size_t at = 0; at < qkv.size();) {
    for (OracleContext::Array& part : out) {
      const auto row = static_cast<size_t>(part.shape[2] * part.shape[3]);
      part.values.insert(part.values.end(), qkv.begin() + static_cast<ptrdiff_t>(at),
                         qkv.begin() + static_cast<ptrdiff_t>(at + row));
      at += row;
    }
  }
  return out;
}

}  // namespace packed_attention
}  // namespace bowline::detail
