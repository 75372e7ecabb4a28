//! variants KEYS=plain,codes
// o = softmax(scale q k^T) v with an online softmax (Milakov and Gimelshein, 2018; FlashAttention,
// Dao et al., 2022), for GPUs. Rows are queries, columns are keys.
//
// If few workgroups would run, the keys are divided into parts of PART_KEYS keys. A workgroup then
// writes a row's sum of e^(score - maximum) * v, maximum, and sum of e^(score - maximum).
// attention_combine.comp joins the parts in their order.
#include "attention_tile.glsl"
#include "bad_index.glsl"

#if defined(KEYS_codes)
layout(constant_id = 7) const uint FORMAT = 255;  // see codes.glsl
#include "codes.glsl"
vec4 load_shown(Floats rows, uint start, uint d) {
  vec4 out_4 = vec4(0);
  [[unroll]] for (uint c = 0; c < 4; ++c) {
    const A value = decode(CodeTable(rows), start / D, min(d + c, D - 1));
    out_4[c] = d + c < D ? value : 0;
  }
  return out_4;
}
#else
#define load_shown load_4
#endif

#define LOAD_Q(r, d) (p.scale * load_4(p.q, row_at[r], d))
#define LOAD_K(r, d) load_shown(p.k, column_at[r], d)
#define LOAD_V(r, d) load_shown(p.v, column_at[r], d)

void main() {
  const uint sharing = p.heads / p.kv_heads;
  const uint rows = p.queries * sharing;
  const uint blocks = (rows + ROWS - 1) / ROWS;
  const uint group = group_index();
  const uint part = group % KEY_PARTS;
  const uint bh = group / KEY_PARTS / blocks;
  if (bh >= p.batch * p.kv_heads) {
    return;
  }
  const uint b = bh / p.kv_heads;
  const uint kv_head = bh % p.kv_heads;
  const uint first = (group / KEY_PARTS % blocks) * ROWS;
  // Each query sees keys in [0, end); some query of the tile sees keys in [0, last). A query behind
  // the current size sees no key.
  const uint queries = extent(p.step, AT_QUERY_COUNT, p.queries);
  const uint there = extent(p.step, AT_KEY_COUNT, p.keys);
  const int shift = int(there) - int(queries);
  const int keys = int(masked_end(b, there));
  const uint last_key = uint(max(keys, 1)) - 1;
  const uint last_query = min((min(first + ROWS, rows) - 1) / sharing + 1, queries);
  int last = CAUSAL != 0 ? min(int(last_query) + shift, keys) : keys;
  int begin = first_key(int(first / sharing), shift);
  if (PART_KEYS != 0) {
    begin = max(begin, int(part * PART_KEYS));
    last = min(last, int((part + 1) * PART_KEYS));
  }
  if (MASK == 3 && group == bh * blocks * KEY_PARTS && kv_head == 0 && gl_LocalInvocationID.x == 0) {
    const int length = int(p.mask.v[b]);
    if (length < 0 || uint(length) > p.keys) {
      bad_index(p.step, NODE, length);
    }
  }
  if (gl_LocalInvocationID.x < ROWS) {
    const uint r = min(first + gl_LocalInvocationID.x, rows - 1);
    row_at[gl_LocalInvocationID.x] =
        input_start(b, kv_head * sharing + r % sharing, r / sharing, p.heads, p.queries);
  }
  uint query[THREAD_ROWS];
  uint head[THREAD_ROWS];
  A top[THREAD_ROWS];
  A sum[THREAD_ROWS];
  vec4 o[THREAD_ROWS * GROUPS];
  FOR_ROWS(i) {
    const uint r = min(first + ROW(i), rows - 1);
    query[i] = r / sharing;
    head[i] = kv_head * sharing + r % sharing;
    top[i] = -kInfinity;
    sum[i] = 0;
    FOR_GROUPS(g) { o[i * GROUPS + g] = vec4(0); }
  }
  for (int j0 = begin; j0 < last; j0 += int(COLUMNS)) {
    barrier();
    if (gl_LocalInvocationID.x < COLUMNS) {
      const uint key = min(uint(j0) + gl_LocalInvocationID.x, last_key);
      column_at[gl_LocalInvocationID.x] = input_start(b, kv_head, key, p.kv_heads, p.keys);
    }
    A s[THREAD_ROWS][THREAD_COLUMNS];
    FOR_ROWS(i) { FOR_COLUMNS(j) { s[i][j] = 0; } }
    ADD_SCORES(s, LOAD_Q, LOAD_K)
    FOR_ROWS(i) {
      const int seen = CAUSAL != 0 ? min(int(query[i]) + shift + 1, keys) : keys;
      const int end = query[i] < queries ? min(seen, last) : 0;
      A most = -kInfinity;
      FOR_COLUMNS(j) {
        const int key = j0 + int(COLUMN(j));
        const A score = masked(capped(s[i][j]), b, head[i], query[i], min(uint(key), last_key));
        s[i][j] = key < end && key >= first_key(int(query[i]), shift) ? score : -kInfinity;
        most = max(most, s[i][j]);
      }
      partial[ROW(i)][X] = most;
    }
    barrier();
    FOR_ROWS(i) {
      A new_top = top[i];
      [[unroll]] for (uint k = 0; k < 16; ++k) {
        new_top = max(new_top, partial[ROW(i)][k]);
      }
      // A query that has seen no key yet keeps zeros.
      const A base = is_minus_infinity(new_top) ? 0 : new_top;
      const A shrink = exp_below(top[i] - base);
      top[i] = new_top;
      sum[i] *= shrink;
      FOR_GROUPS(g) { o[i * GROUPS + g] *= shrink; }
      FOR_COLUMNS(j) {
        s[i][j] = exp_below(s[i][j] - base);
        sum[i] += s[i][j];
      }
    }
    SHARE_WEIGHTS(s)
    ADD_RESULTS(o, LOAD_V)
  }
  SUM_OF_ROWS(total, sum[i])
  FOR_ROWS(i) {
    if (first + ROW(i) < rows) {
      const uint stat = (b * p.heads + head[i]) * p.queries + query[i];
      const uint at = stat * KEY_PARTS + part;
      const A factor = PART_KEYS != 0 ? 1 : is_zero(total[i]) ? 0 : 1 / total[i];
      FOR_GROUPS(g) {
        const vec4 value = factor * o[i * GROUPS + g];
        if (PART_KEYS != 0) {
          store_4(p.d_q, at * D, 64 * g + 4 * X, value);
        } else {
          store_4(p.o, row_start(b, head[i], query[i], p.heads, p.queries), 64 * g + 4 * X, value);
        }
      }
      if (X == 0) {
        if (PART_KEYS != 0) {
          p.d_k.v[2 * at] = top[i];
          p.d_k.v[2 * at + 1] = total[i];
        } else {
          p.lse.v[stat] = is_zero(total[i]) ? -kInfinity : top[i] + log_f32(total[i]);
        }
      }
    }
  }
}
