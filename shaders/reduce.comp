//! variants AXIS=rows,columns T=f32,f16,bf16
#version 460
#extension GL_GOOGLE_include_directive : require
// y[o] = factor * sum of x over the reduced indices. The host merges the kept axes, and the reduced
// axes.
//   rows     the last axis is reduced: one subgroup per output; each lane adds every S-th term
//   columns  otherwise: one invocation per output, so that lanes read neighbours
#include "common.glsl"
#include "index.glsl"
#include "offsets.glsl"

layout(constant_id = 1) const uint KEPT = 1;
layout(constant_id = 2) const uint REDUCED = 1;

const uint UNROLL = 8;

layout(push_constant, scalar) uniform Push {
  Elements x;
  Elements y;
  Words dims;  // of the kept axes, then of the reduced axes, see index.glsl
  uint n;      // outputs
  uint terms;  // per output
  uint per_group;
  float factor;
} p;

DEFINE_OFFSET(offset_in_kept, KEPT)
DEFINE_OFFSET(offset_in_reduced, REDUCED)
#define KEPT_OFFSET(o) offset_in_kept(o, kept_dim, kept_magic, kept_shift, kept_stride)
#define REDUCED_OFFSET(t) offset_in_reduced(t, reduced_dim, reduced_magic, reduced_shift, reduced_stride)

void main() {
  LOAD_TABLE(p.dims, 0, KEPT, kept)
  LOAD_STRIDES(p.dims, 0, KEPT, 0, kept_stride)
  LOAD_TABLE(p.dims, 4 * KEPT, REDUCED, reduced)
  LOAD_STRIDES(p.dims, 4 * KEPT, REDUCED, 0, reduced_stride)
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
      sums[j] += term < p.terms ? read(p.x, base + REDUCED_OFFSET(term)) : 0;
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
  const uint first = group_index() * p.per_group;
  const uint end = min(first + p.per_group, p.n);
  for (uint o = first + gl_LocalInvocationID.x; o < end; o += gl_WorkGroupSize.x) {
    const uint base = KEPT_OFFSET(o);
    A sums[UNROLL];  // several chains, for precision and speed
    [[unroll]] for (uint j = 0; j < UNROLL; ++j) {
      sums[j] = 0;
    }
    for (uint t = 0; t < p.terms; t += UNROLL) {
      [[unroll]] for (uint j = 0; j < UNROLL; ++j) {
        sums[j] += t + j < p.terms ? read(p.x, base + REDUCED_OFFSET(t + j)) : 0;
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
