//! variants AXIS=rows,columns
#version 460
#extension GL_GOOGLE_include_directive : require
// y[o] = factor * sum over the reduced indices of x. Outputs are decomposed over the kept dims, the reduced index over
// the reduced dims; both lists are merged by the host.
//   rows     the last dim is reduced: one subgroup per output, its lanes take every S-th term
//   columns  otherwise: one invocation per output, so that lanes read neighbours
#include "common.glsl"

layout(constant_id = 1) const uint KEPT = 1;
layout(constant_id = 2) const uint REDUCED = 1;

layout(push_constant, scalar) uniform Push {
  Floats x;
  Floats y;
  Words dims;  // KEPT dims and strides, REDUCED dims and strides
  uint n;      // outputs
  uint terms;  // per output
  uint per_group;
  float factor;
} p;

uint kept_offset(uint o) {
  uint at = 0;
  [[unroll]] for (uint r = 0; r < KEPT; ++r) {
    const uint axis = KEPT - 1 - r;
    const uint dim = p.dims.v[axis];
    at += (r + 1 == KEPT ? o : o % dim) * p.dims.v[KEPT + axis];
    o = r + 1 == KEPT ? 0 : o / dim;
  }
  return at;
}

uint reduced_offset(uint t) {
  uint at = 0;
  [[unroll]] for (uint r = 0; r < REDUCED; ++r) {
    const uint axis = REDUCED - 1 - r;
    const uint dim = p.dims.v[2 * KEPT + axis];
    at += (r + 1 == REDUCED ? t : t % dim) * p.dims.v[2 * KEPT + REDUCED + axis];
    t = r + 1 == REDUCED ? 0 : t / dim;
  }
  return at;
}

void main() {
#if defined(AXIS_rows)
  const uint o = subgroup_index();
  if (o >= p.n) {
    return;
  }
  const uint base = kept_offset(o);
  A sum = 0;
  for (uint t = gl_SubgroupInvocationID; t < p.terms; t += gl_SubgroupSize) {
    sum += p.x.v[base + reduced_offset(t)];
  }
  sum = subgroupAdd(sum);
  if (subgroupElect()) {
    p.y.v[o] = sum * p.factor;
  }
#else
  const uint first = group_index() * p.per_group;
  const uint end = min(first + p.per_group, p.n);
  for (uint o = first + gl_LocalInvocationID.x; o < end; o += gl_WorkGroupSize.x) {
    const uint base = kept_offset(o);
    A sums[4] = A[4](0, 0, 0, 0);  // four chains, for precision and speed
    uint t = 0;
    for (; t + 4 <= p.terms; t += 4) {
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        sums[j] += p.x.v[base + reduced_offset(t + j)];
      }
    }
    for (; t < p.terms; ++t) {
      sums[0] += p.x.v[base + reduced_offset(t)];
    }
    p.y.v[o] = ((sums[0] + sums[1]) + (sums[2] + sums[3])) * p.factor;
  }
#endif
}
