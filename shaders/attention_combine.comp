// Joins the results that attention_tile.comp has for parts of the keys, in their order. A subgroup
// has a row of one query and head.
#include "attention.glsl"

void main() {
  ROW_OF_SUBGROUP(row, p.batch * p.heads * p.queries)
  const uint t = row % p.queries;
  const uint bh = row / p.queries;
  A top = -kInfinity;
  for (uint part = 0; part < KEY_PARTS; ++part) {
    top = max(top, p.d_k.v[2 * (row * KEY_PARTS + clamp_index(part, KEY_PARTS))]);
  }
  const A base = is_minus_infinity(top) ? 0 : top;
  A sum = 0;
  for (uint part = 0; part < KEY_PARTS; ++part) {
    const uint at = 2 * (row * KEY_PARTS + clamp_index(part, KEY_PARTS));
    sum += p.d_k.v[at + 1] * exp_below(p.d_k.v[at] - base);
  }
  const A inverse = is_zero(sum) ? 0 : 1 / sum;
  const uint start = row_start(bh / p.heads, bh % p.heads, t, p.heads, p.queries);
  for (uint d = gl_SubgroupInvocationID; d < D; d += gl_SubgroupSize) {
    A o = 0;
    for (uint part = 0; part < KEY_PARTS; ++part) {
      const uint at = row * KEY_PARTS + clamp_index(part, KEY_PARTS);
      o += p.d_q.v[at * D + d] * exp_below(p.d_k.v[2 * at] - base);
    }
    p.o.v[start + d] = o * inverse;
  }
  if (gl_SubgroupInvocationID == 0) {
    p.lse.v[row] = is_zero(sum) ? -kInfinity : top + log_f32(sum);
  }
}
