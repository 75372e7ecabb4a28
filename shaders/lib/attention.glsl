// Parts shared by all attention shaders: operands, masks, and soft-capping.
#include "common.glsl"
#include "math.glsl"
#include "step.glsl"
#include "count.glsl"

layout(constant_id = 1) const uint D = 32;  // head size
layout(constant_id = 4) const uint MASK = 0;  // 1: additive, 2: bool per key, 3: lengths
layout(constant_id = 5) const uint WINDOW = 0;  // maximum number of visible keys per query; 0: all
// soft-capping: SOFTCAP * tanh(score / SOFTCAP); 0: none
layout(constant_id = 6) const float SOFTCAP = 0;
// The heads of a row if q, k and v are packed beside each other; 0: each is alone.
layout(constant_id = 8) const uint PACKED = 0;

layout(push_constant, scalar) uniform Push {
  Elements q;
  Elements k;
  Elements v;
  Elements o;
  Floats lse;  // [batch, heads, queries]: log-sum-exp of the scores
  Floats d_o;  // gradients of o, q, k, v
  Floats d_q;  // forward in parts of the keys: not normalized results, see attention_tile.comp
  Floats d_k;  // forward in parts of the keys: their maximum and sum
  Floats d_v;
  Floats delta;  // [batch, heads, queries]: sum of d_o * o; see also attention_few.comp
  Step step;
  Words mask;  // MASK 2: bytes, from byte mask_begin on
  Words details;  // see below
  uint batch;
  uint heads;
  uint kv_heads;
  uint queries;
  uint keys;
  float scale;
} p;

#define AT_QUERY_COUNT p.details.v[0]  // of the forward pass: current sizes
#define AT_KEY_COUNT p.details.v[1]
#define NODE p.details.v[2]
#define MASK_BEGIN p.details.v[3]
#define CAUSAL p.details.v[8]  // 1: query i sees the keys up to i + keys - queries
#define PART_KEYS p.details.v[9]  // keys of a part; 0: all keys
#define KEY_PARTS p.details.v[10]  // number of parts
// strides of an additive mask per batch, head, query and key
#define MASK_STEP(axis) p.details.v[4 + (axis)]

// Keys [0, end) of a batch element can be visible, of `keys` keys.
uint masked_end(uint b, uint keys) {
  return MASK == 3 ? min(keys, uint(max(int(p.mask.v[b]), 0))) : keys;
}

// The first visible key of a query, if a key is visible. `shift` is the number of keys minus the
// number of queries.
int first_key(int query, int shift) { return WINDOW == 0 ? 0 : max(query + shift + 1 - int(WINDOW), 0); }

// One past the last query that sees a key; at most p.queries.
int end_of_queries(uint key, int shift) {
  const int queries = int(p.queries);
  return WINDOW == 0 ? queries : clamp(int(key) - shift + int(WINDOW), 0, queries);
}

A capped(A score) { return SOFTCAP == 0 ? score : SOFTCAP * tanh_f32(score / SOFTCAP); }
// The derivative of a soft-capped score with respect to the score.
A cap_slope(A capped_score) {
  const A part = capped_score / (SOFTCAP == 0 ? 1 : SOFTCAP);
  return SOFTCAP == 0 ? 1 : 1 - part * part;
}

// The score of a pair after masking: -infinity if the query does not see the key, even if the score
// is NaN. Loads are valid for existing pairs.
A masked(A score, uint b, uint h, uint query, uint key) {
  if (MASK == 1) {
    const uint at = b * MASK_STEP(0) + h * MASK_STEP(1) + query * MASK_STEP(2) + key * MASK_STEP(3);
    const A added = uintBitsToFloat(p.mask.v[at]);
    return is_minus_infinity(added) ? added : score + added;
  }
  if (MASK == 2) {
    const uint at = MASK_BEGIN + b * p.keys + key;
    return (p.mask.v[at / 4] >> 8 * (at % 4) & 255u) != 0 ? score : -kInfinity;
  }
  return score;
}

// weight * x. With a mask, a weight of 0 gives 0, whatever x is.
A weighed(A weight, A x) { return MASK != 0 && is_zero(weight) ? 0 : weight * x; }

// Operands are [batch, seq, heads, D].
uint row_start(uint b, uint h, uint t, uint heads, uint length) {
  return D * ((b * length + t) * heads + h);
}
// Of q, k, v and their gradients.
uint input_start(uint b, uint h, uint t, uint heads, uint length) {
  return row_start(b, h, t, PACKED != 0 ? PACKED : heads, length);
}

// e^x for x <= 0, without branches; below -87 it is 0.
float exp_below(float x) {
  float n;
  const float reduced = expm1_reduced(max(x, -87.0), n) + 1.0;
  const float e = reduced * power_of_two(int(n));
  return is_nan(x) ? x : (x < -87.0 ? 0.0 : e);
}
