//! variants PART=queries,keys OWN=lane,part
// Gradient of attention from the saved log-sum-exp, without atomics (FlashAttention-2, Dao, 2023):
//   queries  the rows of a subgroup are queries:
//            delta = sum d_o * o, d_q = sum over keys of ds * k
//   keys     the rows are keys:
//            d_v = sum over queries of p * d_o, d_k = sum of ds * q
// with p = exp(score - lse), ds = p * (d_o v - delta) * scale * slope of the soft-cap. `keys` reads
// the delta of `queries`.
#include "attention_rows.glsl"

#if defined(PART_queries)
void main() {
  const uint blocks = (p.queries + ROWS - 1) / ROWS;
  const uint group = group_index();
  const uint bh = group / blocks;
  if (bh >= p.batch * p.heads) {
    return;
  }
  const uint b = bh / p.heads;
  const uint h = bh % p.heads;
  const uint kv_head = h / (p.heads / p.kv_heads);
  const uint first = (group % blocks) * ROWS;
  const uint t = min(first + OWN_ROW, p.queries - 1);
  const uint q_start = input_start(b, h, t, p.heads, p.queries);
  const uint o_start = row_start(b, h, t, p.heads, p.queries);
  const int shift = int(p.keys) - int(p.queries);
  const int keys = int(masked_end(b, p.keys));
  const int end = CAUSAL != 0 ? min(int(t) + shift + 1, keys) : keys;
  const int last = CAUSAL != 0 ? min(int(min(first + ROWS, p.queries)) + shift, keys) : keys;
  const int start = first_key(int(t), shift);

  A q[HELD];
  A d_o[HELD];
  A o[HELD];
  A d_q[HELD];
  LOAD_HELD(q, p.q, q_start, p.scale)
  LOAD_HELD(d_o, p.d_o, o_start, 1)
  LOAD_HELD(o, p.o, o_start, 1)
  A delta = 0;
  [[unroll]] for (uint i = 0; i < HELD; ++i) {
    d_q[i] = 0;
    delta += d_o[i] * o[i];
  }
  delta = TOTAL(delta);
  const A lse = p.lse.v[bh * p.queries + t];
  for (int j = first_key(int(first), shift); j < last; ++j) {
    const uint kv_start = input_start(b, kv_head, uint(j), p.kv_heads, p.keys);
    A k[PARTS];
    A v[PARTS];
    LOAD_PARTS(k, p.k, kv_start)
    LOAD_PARTS(v, p.v, kv_start)
    A s[2] = A[2](0, 0);
    A dp[2] = A[2](0, 0);
    [[unroll]] for (uint i = 0; i < HELD; ++i) {
      s[i & 1] += q[i] * PASSING(k, i);
      dp[i & 1] += d_o[i] * PASSING(v, i);
    }
    // The square root of p, because p itself may be denormal, which some devices flush to zero.
    const A unmasked = capped(TOTAL(s[0] + s[1]));
    const A score = masked(unmasked, b, h, t, clamp_index(uint(j), p.keys));
    const bool sees = j < end && j >= start && (MASK == 0 || !is_minus_infinity(score));
    const A root = sees ? exp_below(0.5 * (score - lse)) : 0;
    const A pull = weighed(root, TOTAL(dp[0] + dp[1]) - delta);
    const A ds = weighed(pull, cap_slope(unmasked)) * p.scale * root;
    [[unroll]] for (uint i = 0; i < HELD; ++i) {
      d_q[i] += weighed(ds, PASSING(k, i));
    }
  }
  if (first + OWN_ROW < p.queries) {
    STORE_HELD(d_q, p.d_q, q_start, 1)
    if (KEEPS_ROW) {
      p.delta.v[bh * p.queries + t] = delta;
    }
  }
}
#else
void main() {
  const uint blocks = (p.keys + ROWS - 1) / ROWS;
  const uint group = group_index();
  const uint bh = group / blocks;
  if (bh >= p.batch * p.kv_heads) {
    return;
  }
  const uint b = bh / p.kv_heads;
  const uint kv_head = bh % p.kv_heads;
  const uint first = (group % blocks) * ROWS;
  const uint t = min(first + OWN_ROW, p.keys - 1);
  const uint kv_start = input_start(b, kv_head, t, p.kv_heads, p.keys);
  const int shift = int(p.keys) - int(p.queries);
  // Queries [begin, queries) see this key; queries from `earliest` on see a key of the subgroup.
  const int begin = CAUSAL != 0 ? int(t) - shift : 0;
  const int earliest = CAUSAL != 0 ? max(int(first) - shift, 0) : 0;
  // One past the last query that sees this key, and any key of the subgroup.
  const int end = end_of_queries(t, shift);
  const int last = end_of_queries(min(first + ROWS, p.keys) - 1, shift);
  const bool is_there = t < masked_end(b, p.keys);

  A k[HELD];
  A v[HELD];
  A d_k[HELD];
  A d_v[HELD];
  LOAD_HELD(k, p.k, kv_start, p.scale)
  LOAD_HELD(v, p.v, kv_start, 1)
  [[unroll]] for (uint i = 0; i < HELD; ++i) {
    d_k[i] = 0;
    d_v[i] = 0;
  }
  const uint sharing = p.heads / p.kv_heads;
  for (uint g = 0; g < sharing; ++g) {
    const uint h = kv_head * sharing + clamp_index(g, sharing);
    for (int i = earliest; i < last; ++i) {
      const uint q_start = input_start(b, h, uint(i), p.heads, p.queries);
      const uint stat = (b * p.heads + h) * p.queries + clamp_index(uint(i), p.queries);
      A q[PARTS];
      A d_o[PARTS];
      LOAD_PARTS(q, p.q, q_start)
      LOAD_PARTS(d_o, p.d_o, row_start(b, h, uint(i), p.heads, p.queries))
      A s[2] = A[2](0, 0);
      A dp[2] = A[2](0, 0);
      [[unroll]] for (uint e = 0; e < HELD; ++e) {
        s[e & 1] += k[e] * PASSING(q, e);
        dp[e & 1] += v[e] * PASSING(d_o, e);
      }
      const A unmasked = capped(TOTAL(s[0] + s[1]));
      const A score = masked(unmasked, b, h, clamp_index(uint(i), p.queries), t);
      const bool sees = i >= begin && i < end && (MASK == 0 || (is_there && !is_minus_infinity(score)));
      const A root = sees ? exp_below(0.5 * (score - p.lse.v[stat])) : 0;
      const A weight = root * root;
      const A pull = weighed(root, TOTAL(dp[0] + dp[1]) - p.delta.v[stat]);
      const A ds = weighed(pull, cap_slope(unmasked)) * p.scale * root;
      [[unroll]] for (uint e = 0; e < HELD; ++e) {
        d_k[e] += weighed(ds, PASSING(q, e));
        d_v[e] += weighed(weight, PASSING(d_o, e));
      }
    }
  }
  if (first + OWN_ROW < p.keys) {
    STORE_HELD(d_k, p.d_k, kv_start, 1)
    STORE_HELD(d_v, p.d_v, kv_start, 1)
  }
}
#endif
