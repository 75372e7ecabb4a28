//! variants PART=queries,keys
#version 460
#extension GL_GOOGLE_include_directive : require
// Gradient of attention from the saved log of the sums, without atomics (FlashAttention-2, Dao, 2023):
//   queries  a lane has one query:  delta = sum d_o * o, d_q = sum over keys of ds * k
//   keys     a lane has one key:    d_v = sum over queries of p * d_o, d_k = sum of ds * q
// with p = exp(scale q k - lse), ds = p * (d_o v - delta) * scale. `keys` reads the delta of `queries`.
#include "attention.glsl"

#if defined(PART_queries)
void main() {
  const uint lane = gl_SubgroupInvocationID;
  const uint blocks = (p.queries + S - 1) / S;
  const uint group = group_index();
  const uint bh = group / blocks;
  if (bh >= p.batch * p.heads) {
    return;
  }
  const uint b = bh / p.heads;
  const uint h = bh % p.heads;
  const uint kv_head = h / (p.heads / p.kv_heads);
  const uint first = (group % blocks) * S;
  const uint t = min(first + lane, p.queries - 1);
  const uint q_start = row_start(b, h, t, p.heads, p.queries);
  const int shift = int(p.keys) - int(p.queries);
  const int keys = int(masked_end(b, p.keys));
  const int end = CAUSAL != 0 ? min(int(t) + shift + 1, keys) : keys;
  const int last = CAUSAL != 0 ? min(int(min(first + S, p.queries)) + shift, keys) : keys;

  A q[D];
  A d_o[D];
  A d_q[D];
  A delta = 0;
  [[unroll]] for (uint d = 0; d < D; ++d) {
    q[d] = p.q.v[q_start + d] * p.scale;
    d_o[d] = p.d_o.v[q_start + d];
    d_q[d] = 0;
    delta += d_o[d] * p.o.v[q_start + d];
  }
  const A lse = p.lse.v[bh * p.queries + t];
  for (int j = 0; j < last; ++j) {
    const uint kv_start = row_start(b, kv_head, uint(j), p.kv_heads, p.keys);
    A k[PARTS];
    A v[PARTS];
    LOAD_PARTS(k, p.k, kv_start)
    LOAD_PARTS(v, p.v, kv_start)
    A s[2] = A[2](0, 0);
    A dp[2] = A[2](0, 0);
    [[unroll]] for (uint d = 0; d < D; ++d) {
      s[d & 1] += q[d] * ELEMENT(k, d);
      dp[d & 1] += d_o[d] * ELEMENT(v, d);
    }
    // The root of p: p alone may be denormal, which devices take for zero.
    const A score = masked(s[0] + s[1], b, h, t, clamp_index(uint(j), p.keys));
    const bool sees = j < end && (MASK == 0 || score != -kInfinity);
    const A root = sees ? exp_below(0.5 * (score - lse)) : 0;
    const A ds = weighed(root, dp[0] + dp[1] - delta) * p.scale * root;
    [[unroll]] for (uint d = 0; d < D; ++d) {
      d_q[d] += weighed(ds, ELEMENT(k, d));
    }
  }
  if (first + lane < p.queries) {
    [[unroll]] for (uint d = 0; d < D; ++d) {
      p.d_q.v[q_start + d] = d_q[d];
    }
    p.delta.v[bh * p.queries + t] = delta;
  }
}
#else
void main() {
  const uint lane = gl_SubgroupInvocationID;
  const uint blocks = (p.keys + S - 1) / S;
  const uint group = group_index();
  const uint bh = group / blocks;
  if (bh >= p.batch * p.kv_heads) {
    return;
  }
  const uint b = bh / p.kv_heads;
  const uint kv_head = bh % p.kv_heads;
  const uint first = (group % blocks) * S;
  const uint t = min(first + lane, p.keys - 1);
  const uint kv_start = row_start(b, kv_head, t, p.kv_heads, p.keys);
  const int shift = int(p.keys) - int(p.queries);
  // Queries [begin, queries) see this lane's key, those from `earliest` on see a key of the block.
  const int begin = CAUSAL != 0 ? int(t) - shift : 0;
  const int earliest = CAUSAL != 0 ? max(int(first) - shift, 0) : 0;
  const bool is_there = t < masked_end(b, p.keys);

  A k[D];
  A v[D];
  A d_k[D];
  A d_v[D];
  [[unroll]] for (uint d = 0; d < D; ++d) {
    k[d] = p.k.v[kv_start + d] * p.scale;
    v[d] = p.v.v[kv_start + d];
    d_k[d] = 0;
    d_v[d] = 0;
  }
  const uint sharing = p.heads / p.kv_heads;
  for (uint g = 0; g < sharing; ++g) {
    const uint h = kv_head * sharing + clamp_index(g, sharing);
    for (int i = earliest; i < int(p.queries); ++i) {
      const uint q_start = row_start(b, h, uint(i), p.heads, p.queries);
      const uint stat = (b * p.heads + h) * p.queries + clamp_index(uint(i), p.queries);
      A q[PARTS];
      A d_o[PARTS];
      LOAD_PARTS(q, p.q, q_start)
      LOAD_PARTS(d_o, p.d_o, q_start)
      A s[2] = A[2](0, 0);
      A dp[2] = A[2](0, 0);
      [[unroll]] for (uint d = 0; d < D; ++d) {
        s[d & 1] += k[d] * ELEMENT(q, d);
        dp[d & 1] += v[d] * ELEMENT(d_o, d);
      }
      const A score = masked(s[0] + s[1], b, h, clamp_index(uint(i), p.queries), t);
      const bool sees = i >= begin && (MASK == 0 || (is_there && score != -kInfinity));
      const A root = sees ? exp_below(0.5 * (score - p.lse.v[stat])) : 0;
      const A e = root * root;
      const A ds = weighed(root, dp[0] + dp[1] - p.delta.v[stat]) * p.scale * root;
      [[unroll]] for (uint d = 0; d < D; ++d) {
        d_k[d] += weighed(ds, ELEMENT(q, d));
        d_v[d] += weighed(e, ELEMENT(d_o, d));
      }
    }
  }
  if (first + lane < p.keys) {
    [[unroll]] for (uint d = 0; d < D; ++d) {
      p.d_k.v[kv_start + d] = d_k[d];
      p.d_v.v[kv_start + d] = d_v[d];
    }
  }
}
#endif
