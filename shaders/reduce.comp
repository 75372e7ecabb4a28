//! variants AXIS=rows,columns T=f32,f16,bf16
// y[o] = factor * sum of x over the reduced indices. The host merges the kept axes, and the reduced
// axes.
//   rows     the last axis is reduced: one subgroup per output; each lane adds every S-th term
//   columns  otherwise: one invocation per output, so that lanes read neighbours
#include "common.glsl"
#include "index.glsl"
#include "groups.glsl"

const uint UNROLL = 8;

layout(push_constant, scalar) uniform Push {
  Elements x;
  Elements y;
  Words dims;  // see groups.glsl
  uint n;      // outputs
  uint terms;  // per output
  uint per_group;
  float factor;
} p;

void main() {
  LOAD_GROUPS(p.dims)
#if defined(AXIS_rows)
  const uint o = subgroup_index();
  if (o >= p.n) {
    return;
  }
  const uint base = KEPT_OFFSET(o);
  A sums[UNROLL];
  [[unroll]] for (uint j = 0; j < UNROLL; ++j) {
    sums[j] = 0;
  }
  for (uint t = gl_SubgroupInvocationID; t < p.terms; t += UNROLL * gl_SubgroupSize) {
    [[unroll]] for (uint j = 0; j < UNROLL; ++j) {
      const uint term = t + j * gl_SubgroupSize;
      sums[j] += term < p.terms ? read(p.x, base + GONE_OFFSET(term)) : 0;
    }
  }
  A sum = 0;
  [[unroll]] for (uint j = 0; j < UNROLL; ++j) {
    sum += sums[j];
  }
  sum = subgroupAdd(sum);
  if (subgroupElect()) {
    write(p.y, o, sum * p.factor);
  }
#else
  FOR_ELEMENTS(o, p.n) {
    const uint base = KEPT_OFFSET(o);
    A sums[UNROLL];  // several chains, for precision and speed
    [[unroll]] for (uint j = 0; j < UNROLL; ++j) {
      sums[j] = 0;
    }
    for (uint t = 0; t < p.terms; t += UNROLL) {
      [[unroll]] for (uint j = 0; j < UNROLL; ++j) {
        sums[j] += t + j < p.terms ? read(p.x, base + GONE_OFFSET(t + j)) : 0;
      }
    }
    A sum = 0;
    [[unroll]] for (uint j = 0; j < UNROLL; ++j) {
      sum += sums[j];
    }
    write(p.y, o, sum * p.factor);
  }
#endif
}
