//! variants OWN=lane,part KEYS=plain,codes
// o = softmax(scale q k^T) v with an online softmax (Milakov and Gimelshein, 2018; FlashAttention,
// Dao et al., 2022). The rows of a subgroup are queries.
#include "attention_rows.glsl"
#include "bad_index.glsl"

// Keys and values are floats, or both are quantized.
#if defined(KEYS_codes)
layout(constant_id = 7) const uint FORMAT = 255;  // see codes.glsl
#include "codes.glsl"
#define LOAD_SHOWN(parts, rows, start)                                          \
  [[unroll]] for (uint part = 0; part < PARTS; ++part) {                        \
    const uint at = part * S + gl_SubgroupInvocationID;                         \
    parts[part] = decode(CodeTable(rows), (start) / D, min(at, D - 1));         \
    parts[part] = at < D ? parts[part] : 0;                                     \
  }
#else
#define LOAD_SHOWN(parts, rows, start) LOAD_PARTS(parts, rows, start)
#endif

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
  // This query sees keys in [0, end); some query of the subgroup sees keys in [0, last). A query
  // behind the current size sees no key.
  const uint queries = extent(p.step, AT_QUERY_COUNT, p.queries);
  const uint there = extent(p.step, AT_KEY_COUNT, p.keys);
  const int shift = int(there) - int(queries);
  const int keys = int(masked_end(b, there));
  const uint last_key = uint(max(keys, 1)) - 1;
  const int seen = CAUSAL != 0 ? min(int(t) + shift + 1, keys) : keys;
  const int end = t < queries ? seen : 0;
  const int last = CAUSAL != 0 ? min(int(min(first + ROWS, queries)) + shift, keys) : keys;
  const int start = first_key(int(t), shift);
  if (MASK == 3 && first == 0 && h == 0 && gl_SubgroupInvocationID == 0) {
    const int length = int(p.mask.v[b]);
    if (length < 0 || uint(length) > p.keys) {
      bad_index(p.step, NODE, length);
    }
  }

  A q[HELD];
  A o[HELD];
  LOAD_HELD(q, p.q, q_start, p.scale)
  [[unroll]] for (uint i = 0; i < HELD; ++i) {
    o[i] = 0;
  }
  A top = -kInfinity;
  A sum = 0;
  for (int j0 = first_key(int(first), shift); j0 < last; j0 += int(BLOCK)) {
    A s[BLOCK];
    A new_top = top;
    [[unroll]] for (uint j = 0; j < BLOCK; ++j) {
      const uint key = min(uint(j0) + j, last_key);
      A parts[PARTS];
      LOAD_SHOWN(parts, p.k, input_start(b, kv_head, key, p.kv_heads, p.keys))
      A dots[2] = A[2](0, 0);
      [[unroll]] for (uint i = 0; i < HELD; ++i) {
        dots[i & 1] += q[i] * PASSING(parts, i);
      }
      const A score = masked(capped(TOTAL(dots[0] + dots[1])), b, h, t, key);
      s[j] = j0 + int(j) < end && j0 + int(j) >= start ? score : -kInfinity;
      new_top = max(new_top, s[j]);
    }
    // A query that has seen no key yet keeps zeros.
    const A base = is_minus_infinity(new_top) ? 0 : new_top;
    const A shrink = exp_below(top - base);
    top = new_top;
    sum *= shrink;
    [[unroll]] for (uint i = 0; i < HELD; ++i) {
      o[i] *= shrink;
    }
    [[unroll]] for (uint j = 0; j < BLOCK; ++j) {
      const uint key = min(uint(j0) + j, last_key);
      const A e = exp_below(s[j] - base);
      sum += e;
      A parts[PARTS];
      LOAD_SHOWN(parts, p.v, input_start(b, kv_head, key, p.kv_heads, p.keys))
      [[unroll]] for (uint i = 0; i < HELD; ++i) {
        o[i] += weighed(e, PASSING(parts, i));
      }
    }
  }
  if (first + OWN_ROW < p.queries) {
    const A inverse = is_zero(sum) ? 0 : 1 / sum;
    STORE_HELD(o, p.o, row_start(b, h, t, p.heads, p.queries), inverse)
    if (KEEPS_ROW) {
      p.lse.v[bh * p.queries + t] = is_zero(sum) ? -kInfinity : top + log_f32(sum);
    }
  }
}
