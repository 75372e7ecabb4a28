//! variants PART=queries,keys
// Gradient of attention from the saved log-sum-exp, without atomics (FlashAttention-2, Dao, 2023),
// for GPUs. The formulas are those of attention_grad.comp. `queries` writes d_q and delta with
// queries as rows, `keys` then writes d_k and d_v with keys as rows.
#include "attention_tile.glsl"

// The weight p of a pair and the gradient of its score. `score` is before soft-capping.
void weights_of(A score, A pull_of_o, uint b, uint h, uint t, uint key, bool in_range, A lse,
                A delta, out A weight, out A d_score) {
  // The square root of p, because p itself may be denormal, which some devices flush to zero.
  const A unmasked = capped(score);
  const A after = masked(unmasked, b, h, t, key);
  const bool sees = in_range && (MASK == 0 || !is_minus_infinity(after));
  const A root = sees ? exp_below(0.5 * (after - lse)) : 0;
  const A pull = weighed(root, pull_of_o - delta);
  weight = root * root;
  d_score = weighed(pull, cap_slope(unmasked)) * p.scale * root;
}

// Where rows of o and d_o begin: the rows or the columns of the tile.
shared uint o_at[ROWS > COLUMNS ? ROWS : COLUMNS];

#if defined(PART_queries)
#define LOAD_Q(r, d) (p.scale * load_4(p.q, row_at[r], d))
#define LOAD_D_O(r, d) load_4(p.d_o, o_at[r], d)
#define LOAD_K(r, d) load_4(p.k, column_at[r], d)
#define LOAD_V(r, d) load_4(p.v, column_at[r], d)
void main() {
  const uint sharing = p.heads / p.kv_heads;
  const uint rows = p.queries * sharing;
  const uint blocks = (rows + ROWS - 1) / ROWS;
  const uint group = group_index();
  const uint bh = group / blocks;
  if (bh >= p.batch * p.kv_heads) {
    return;
  }
  const uint b = bh / p.kv_heads;
  const uint kv_head = bh % p.kv_heads;
  const uint first = (group % blocks) * ROWS;
  const int shift = int(p.keys) - int(p.queries);
  const int keys = int(masked_end(b, p.keys));
  const uint last_query = (min(first + ROWS, rows) - 1) / sharing;
  const int last = CAUSAL != 0 ? min(int(last_query) + 1 + shift, keys) : keys;
  if (gl_LocalInvocationID.x < ROWS) {
    const uint r = min(first + gl_LocalInvocationID.x, rows - 1);
    const uint h = kv_head * sharing + r % sharing;
    row_at[gl_LocalInvocationID.x] = input_start(b, h, r / sharing, p.heads, p.queries);
    o_at[gl_LocalInvocationID.x] = row_start(b, h, r / sharing, p.heads, p.queries);
  }
  barrier();
  uint query[THREAD_ROWS];
  uint head[THREAD_ROWS];
  A lse[THREAD_ROWS];
  A part[THREAD_ROWS];
  vec4 d_q[THREAD_ROWS * GROUPS];
  FOR_ROWS(i) {
    const uint r = min(first + ROW(i), rows - 1);
    query[i] = r / sharing;
    head[i] = kv_head * sharing + r % sharing;
    lse[i] = p.lse.v[(b * p.heads + head[i]) * p.queries + query[i]];
    part[i] = 0;
    FOR_GROUPS(g) {
      const uint d = 64 * g + 4 * X;
      d_q[i * GROUPS + g] = vec4(0);
      part[i] += dot(load_4(p.d_o, o_at[ROW(i)], d), load_4(p.o, o_at[ROW(i)], d));
    }
  }
  SUM_OF_ROWS(delta, part[i])
  for (int j0 = first_key(int(first / sharing), shift); j0 < last; j0 += int(COLUMNS)) {
    barrier();
    if (gl_LocalInvocationID.x < COLUMNS) {
      const uint key = min(uint(j0) + gl_LocalInvocationID.x, p.keys - 1);
      column_at[gl_LocalInvocationID.x] = input_start(b, kv_head, key, p.kv_heads, p.keys);
    }
    A s[THREAD_ROWS][THREAD_COLUMNS];
    A dp[THREAD_ROWS][THREAD_COLUMNS];
    FOR_ROWS(i) {
      FOR_COLUMNS(j) {
        s[i][j] = 0;
        dp[i][j] = 0;
      }
    }
    ADD_SCORES(s, LOAD_Q, LOAD_K)
    ADD_SCORES(dp, LOAD_D_O, LOAD_V)
    FOR_ROWS(i) {
      const int end = CAUSAL != 0 ? min(int(query[i]) + shift + 1, keys) : keys;
      FOR_COLUMNS(j) {
        const int key = j0 + int(COLUMN(j));
        const bool in_range = key < end && key >= first_key(int(query[i]), shift);
        A weight;
        weights_of(s[i][j], dp[i][j], b, head[i], query[i], min(uint(key), p.keys - 1), in_range,
                   lse[i], delta[i], weight, dp[i][j]);
      }
    }
    SHARE_WEIGHTS(dp)
    ADD_RESULTS(d_q, LOAD_K)
  }
  FOR_ROWS(i) {
    if (first + ROW(i) < rows) {
      FOR_GROUPS(g) { store_4(p.d_q, row_at[ROW(i)], 64 * g + 4 * X, d_q[i * GROUPS + g]); }
      if (X == 0) {
        p.delta.v[(b * p.heads + head[i]) * p.queries + query[i]] = delta[i];
      }
    }
  }
}
#else
#define LOAD_K(r, d) (p.scale * load_4(p.k, row_at[r], d))
#define LOAD_V(r, d) load_4(p.v, row_at[r], d)
#define LOAD_Q(r, d) load_4(p.q, column_at[r], d)
#define LOAD_D_O(r, d) load_4(p.d_o, o_at[r], d)
void main() {
  const uint sharing = p.heads / p.kv_heads;
  const uint blocks = (p.keys + ROWS - 1) / ROWS;
  const uint group = group_index();
  const uint bh = group / blocks;
  if (bh >= p.batch * p.kv_heads) {
    return;
  }
  const uint b = bh / p.kv_heads;
  const uint kv_head = bh % p.kv_heads;
  const uint first = (group % blocks) * ROWS;
  const int shift = int(p.keys) - int(p.queries);
  // Queries [earliest, last) see a key of the tile.
  const int earliest = CAUSAL != 0 ? max(int(first) - shift, 0) : 0;
  const int last = end_of_queries(min(first + ROWS, p.keys) - 1, shift);
  const uint end_of_columns = uint(max(last, 0)) * sharing;
  if (gl_LocalInvocationID.x < ROWS) {
    const uint key = min(first + gl_LocalInvocationID.x, p.keys - 1);
    row_at[gl_LocalInvocationID.x] = input_start(b, kv_head, key, p.kv_heads, p.keys);
  }
  vec4 d_k[THREAD_ROWS * GROUPS];
  vec4 d_v[THREAD_ROWS * GROUPS];
  [[unroll]] for (uint i = 0; i < THREAD_ROWS * GROUPS; ++i) {
    d_k[i] = vec4(0);
    d_v[i] = vec4(0);
  }
  for (uint c0 = uint(earliest) * sharing; c0 < end_of_columns; c0 += COLUMNS) {
    barrier();
    if (gl_LocalInvocationID.x < COLUMNS) {
      const uint r = min(c0 + gl_LocalInvocationID.x, p.queries * sharing - 1);
      const uint h = kv_head * sharing + r % sharing;
      column_at[gl_LocalInvocationID.x] = input_start(b, h, r / sharing, p.heads, p.queries);
      o_at[gl_LocalInvocationID.x] = row_start(b, h, r / sharing, p.heads, p.queries);
    }
    A s[THREAD_ROWS][THREAD_COLUMNS];
    A dp[THREAD_ROWS][THREAD_COLUMNS];
    FOR_ROWS(i) {
      FOR_COLUMNS(j) {
        s[i][j] = 0;
        dp[i][j] = 0;
      }
    }
    ADD_SCORES(s, LOAD_K, LOAD_Q)
    ADD_SCORES(dp, LOAD_V, LOAD_D_O)
    FOR_COLUMNS(j) {
      const uint c = c0 + COLUMN(j);
      const uint r = min(c, p.queries * sharing - 1);
      const uint h = kv_head * sharing + r % sharing;
      const int t = int(r / sharing);
      const uint stat = (b * p.heads + h) * p.queries + uint(t);
      const A lse = p.lse.v[stat];
      const A delta = p.delta.v[stat];
      FOR_ROWS(i) {
        const uint key = min(first + ROW(i), p.keys - 1);
        const bool in_range = c < end_of_columns && t >= (CAUSAL != 0 ? int(key) - shift : 0) &&
                              t < end_of_queries(key, shift) && key < masked_end(b, p.keys);
        A weight;
        A d_score;
        weights_of(s[i][j], dp[i][j], b, h, uint(t), key, in_range, lse, delta, weight, d_score);
        s[i][j] = weight;
        dp[i][j] = d_score;
      }
    }
    SHARE_WEIGHTS(s)
    ADD_RESULTS(d_v, LOAD_D_O)
    SHARE_WEIGHTS(dp)
    ADD_RESULTS(d_k, LOAD_Q)
  }
  barrier();
  FOR_ROWS(i) {
    if (first + ROW(i) < p.keys) {
      FOR_GROUPS(g) {
        const uint d = 64 * g + 4 * X;
        store_4(p.d_k, row_at[ROW(i)], d, d_k[i * GROUPS + g]);
        store_4(p.d_v, row_at[ROW(i)], d, d_v[i * GROUPS + g]);
      }
    }
  }
}
#endif
