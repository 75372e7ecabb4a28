//! variants T=f32,f16,bf16 KEYS=plain,codes
// o = softmax(scale q k^T) v for few queries without a mask, as in decoding, for GPUs. It reads
// keys and values once, in their dtype. A workgroup has a part of the keys, and ROWS rows: queries
// of heads that share a key head. An invocation computes the scores of one key, and then 8 elements
// of the results with some of the keys.
//
// With several parts, the workgroup that ends last joins them, in their order.
#define KEYS_AT_ONCE 128  // invocations of the workgroup
#include "attention.glsl"
#include "eight.glsl"

layout(constant_id = 2) const uint ROWS = 1;
layout(constant_id = 3) const uint VECTORS = 0;  // 1: eight elements can be loaded at once

#if defined(KEYS_codes)
layout(constant_id = 7) const uint FORMAT = 255;  // see codes.glsl
#include "codes.glsl"
#endif

const uint LOADS = (D + 7) / 8;  // of a head
const uint SLICES = KEYS_AT_ONCE / LOADS;

layout(buffer_reference, scalar, buffer_reference_align = 4) coherent buffer Joined { A v[]; };

shared vec4 query[ROWS * 2 * LOADS];
shared A weights[ROWS][KEYS_AT_ONCE];  // scores, then weights
shared A top[ROWS];
shared A sum[ROWS];
shared A shrink[ROWS];
shared A slices[KEYS_AT_ONCE * 8];
shared uint is_last;

#define THREAD gl_LocalInvocationID.x
#define FOR_ROWS(r) [[unroll]] for (uint r = 0; r < ROWS; ++r)

// Elements of the head that begins at `start`.
#if defined(KEYS_codes)
A read_of_head(Elements rows, uint start, uint d) {
  return decode(CodeTable(rows), start / D, d);
}
Eight read_eight(Elements rows, uint start, uint d) {
  A x[8];
  decode_8(CodeTable(rows), start / D, d, x);
  return eight_of(x);
}
#else
A read_of_head(Elements rows, uint start, uint d) { return read(rows, start + d); }
Eight read_eight(Elements rows, uint start, uint d) { return load_vectors(rows, start + d); }
#endif

// Elements d to d + 7 of the head that begins at `start`; 0 past its end.
Eight load_shown(Elements rows, uint start, uint d) {
  if (VECTORS != 0) {
    return read_eight(rows, start, d);
  }
  A x[8];
  [[unroll]] for (uint e = 0; e < 8; ++e) {
    const A element = read_of_head(rows, start, min(d + e, D - 1));
    x[e] = d + e < D ? element : 0;
  }
  return eight_of(x);
}

// The rows of the workgroup: from `first` among the `rows` of a key head.
struct RowBlock {
  uint batch;
  uint kv_head;
  uint first;
  uint rows;
};

struct Row {
  uint query;
  uint head;
  uint number;  // among the rows of all heads
};
Row row_of(RowBlock of, uint r) {
  const uint sharing = p.heads / p.kv_heads;
  const uint query = (of.first + r) / sharing;
  const uint head = of.kv_head * sharing + (of.first + r) % sharing;
  return Row(query, head, (of.batch * p.heads + head) * p.queries + query);
}

// Turns the scores of the current keys into weights.
void weigh_keys() {
  for (uint r = gl_SubgroupID; r < ROWS; r += gl_NumSubgroups) {
    A most = top[r];
    for (uint i = gl_SubgroupInvocationID; i < KEYS_AT_ONCE; i += gl_SubgroupSize) {
      most = max(most, weights[r][i]);
    }
    most = subgroupMax(most);
    // A query that has seen no key yet keeps zeros.
    const A base = is_minus_infinity(most) ? 0 : most;
    const A factor = exp_below(top[r] - base);
    A more = 0;
    for (uint i = gl_SubgroupInvocationID; i < KEYS_AT_ONCE; i += gl_SubgroupSize) {
      const A weight = exp_below(weights[r][i] - base);
      weights[r][i] = weight;
      more += weight;
    }
    more = subgroupAdd(more);
    subgroupBarrier();  // all lanes have read top
    if (gl_SubgroupInvocationID == 0) {
      top[r] = most;
      sum[r] = sum[r] * factor + more;
      shrink[r] = factor;
    }
  }
}

// Writes the sums of the slices: the results, or those of a part of the keys.
void write_part(RowBlock of, uint part, vec4 low[ROWS], vec4 high[ROWS]) {
  const uint slice = THREAD / LOADS;
  Joined results = Joined(p.d_q);
  Joined statistics = Joined(p.d_k);
  FOR_ROWS(r) {
    barrier();
    if (slice < SLICES) {
      [[unroll]] for (uint c = 0; c < 4; ++c) {
        slices[(slice * LOADS + THREAD % LOADS) * 8 + c] = low[r][c];
        slices[(slice * LOADS + THREAD % LOADS) * 8 + 4 + c] = high[r][c];
      }
    }
    barrier();
    if (of.first + r < of.rows) {
      const Row row = row_of(of, r);
      const uint joined = row.number * KEY_PARTS + part;
      const A inverse = is_zero(sum[r]) ? 0 : 1 / sum[r];
      for (uint d = THREAD; d < D; d += KEYS_AT_ONCE) {
        A o = 0;
        for (uint s = 0; s < SLICES; ++s) {
          o += slices[s * LOADS * 8 + d];
        }
        if (KEY_PARTS > 1) {
          results.v[joined * D + d] = o;
        } else {
          write(p.o, row_start(of.batch, row.head, row.query, p.heads, p.queries) + d, o * inverse);
        }
      }
      if (THREAD == 0 && KEY_PARTS > 1) {
        statistics.v[2 * joined] = top[r];
        statistics.v[2 * joined + 1] = sum[r];
      } else if (THREAD == 0) {
        p.lse.v[row.number] = is_zero(sum[r]) ? -kInfinity : top[r] + log_f32(sum[r]);
      }
    }
  }
}

// Joins the parts of the keys.
void join_parts(RowBlock of) {
  Joined results = Joined(p.d_q);
  Joined statistics = Joined(p.d_k);
  FOR_ROWS(r) {
    if (of.first + r < of.rows) {
      const Row row = row_of(of, r);
      A most = -kInfinity;
      for (uint i = 0; i < KEY_PARTS; ++i) {
        most = max(most, statistics.v[2 * (row.number * KEY_PARTS + i)]);
      }
      const A base = is_minus_infinity(most) ? 0 : most;
      A total = 0;
      for (uint i = 0; i < KEY_PARTS; ++i) {
        const uint joined = row.number * KEY_PARTS + i;
        total += statistics.v[2 * joined + 1] * exp_below(statistics.v[2 * joined] - base);
      }
      const A inverse = is_zero(total) ? 0 : 1 / total;
      for (uint d = THREAD; d < D; d += KEYS_AT_ONCE) {
        A o = 0;
        for (uint i = 0; i < KEY_PARTS; ++i) {
          const uint joined = row.number * KEY_PARTS + i;
          o += results.v[joined * D + d] * exp_below(statistics.v[2 * joined] - base);
        }
        write(p.o, row_start(of.batch, row.head, row.query, p.heads, p.queries) + d, o * inverse);
      }
      if (THREAD == 0) {
        p.lse.v[row.number] = is_zero(total) ? -kInfinity : most + log_f32(total);
      }
    }
  }
}

void main() {
  const uint sharing = p.heads / p.kv_heads;
  const uint rows = p.queries * sharing;
  const uint blocks = (rows + ROWS - 1) / ROWS;
  const uint part = group_index() % KEY_PARTS;
  const uint block = group_index() / KEY_PARTS;
  const uint bh = block / blocks;
  if (bh >= p.batch * p.kv_heads) {
    return;
  }
  const uint b = bh / p.kv_heads;
  const uint kv_head = bh % p.kv_heads;
  const uint first = block % blocks * ROWS;
  const RowBlock own = RowBlock(b, kv_head, first, rows);
  // As in attention_tile.comp.
  const uint queries = extent(p.step, AT_QUERY_COUNT, p.queries);
  const uint there = extent(p.step, AT_KEY_COUNT, p.keys);
  const int shift = int(there) - int(queries);
  const uint last_key = max(there, 1u) - 1;
  const uint last_query = min((min(first + ROWS, rows) - 1) / sharing + 1, queries);
  int last = CAUSAL != 0 ? min(int(last_query) + shift, int(there)) : int(there);
  int begin = first_key(int(first / sharing), shift);
  if (PART_KEYS != 0) {
    begin = max(begin, int(part * PART_KEYS));
    last = min(last, int((part + 1) * PART_KEYS));
  }
  for (uint i = THREAD; i < ROWS * LOADS * 8; i += KEYS_AT_ONCE) {
    const uint r = min(first + i / (LOADS * 8), rows - 1);
    const uint d = i % (LOADS * 8);
    const uint head = kv_head * sharing + r % sharing;
    const uint start = row_start(b, head, r / sharing, p.heads, p.queries);
    const A element = read(p.q, start + min(d, D - 1));
    query[i / 4][i % 4] = d < D ? p.scale * element : 0;
  }
  if (THREAD < ROWS) {
    top[THREAD] = -kInfinity;
    sum[THREAD] = 0;
  }
  const uint slice = THREAD / LOADS;
  const uint at = THREAD % LOADS * 8;
  vec4 low[ROWS];
  vec4 high[ROWS];
  FOR_ROWS(r) { low[r] = high[r] = vec4(0); }
  for (int j0 = begin; j0 < last; j0 += KEYS_AT_ONCE) {
    barrier();
    const int key = j0 + int(THREAD);
    const uint start = row_start(b, kv_head, min(uint(key), last_key), p.kv_heads, p.keys);
    A score[ROWS];
    FOR_ROWS(r) { score[r] = 0; }
    for (uint load = 0; load < LOADS; ++load) {
      const Eight k = load_shown(p.k, start, 8 * load);
      FOR_ROWS(r) {
        const uint of = 2 * (r * LOADS + load);
        score[r] += dot(query[of], k.low) + dot(query[of + 1], k.high);
      }
    }
    FOR_ROWS(r) {
      const int t = int(min(first + r, rows - 1) / sharing);
      const int seen = CAUSAL != 0 ? min(t + shift + 1, last) : last;
      const bool sees = t < int(queries) && key < seen && key >= first_key(t, shift);
      weights[r][THREAD] = sees ? capped(score[r]) : -kInfinity;
    }
    barrier();
    weigh_keys();
    barrier();
    FOR_ROWS(r) {
      low[r] *= shrink[r];
      high[r] *= shrink[r];
    }
    const uint count = min(uint(last - j0), KEYS_AT_ONCE);
    for (uint i = slice; i < count && slice < SLICES; i += SLICES) {
      const uint value = row_start(b, kv_head, uint(j0) + i, p.kv_heads, p.keys);
      const Eight v = load_shown(p.v, value, at);
      FOR_ROWS(r) {
        low[r] += weights[r][i] * v.low;
        high[r] += weights[r][i] * v.high;
      }
    }
  }
  write_part(own, part, low, high);
  if (KEY_PARTS == 1) {
    return;
  }
  memoryBarrierBuffer();
  barrier();
  if (THREAD == 0) {
    is_last = atomicAdd(Words(p.delta).v[block], 1u) + 1 == KEY_PARTS ? 1 : 0;
  }
  barrier();
  if (is_last == 0) {
    return;
  }
  memoryBarrierBuffer();
  if (THREAD == 0) {
    Words(p.delta).v[block] = 0;  // for the next run
  }
  join_parts(own);
}
