//! variants DIR=forward,backward
#version 460
#extension GL_GOOGLE_include_directive : require
// Along the last axis, one subgroup per row.
//   forward   y = exp(x - max x) / sum exp(x - max x)
//   backward  dx = y * (dy - sum y dy)
#include "common.glsl"
#include "math.glsl"

layout(push_constant, scalar) uniform Push {
  Floats x;   // backward: y
  Floats dy;
  Floats y;   // backward: dx
  uint rows;
  uint dim;
} p;

void main() {
  const uint row = clamp_index(subgroup_index(), p.rows);
  if (subgroup_index() >= p.rows) {
    return;
  }
  const uint start = row * p.dim;
  const uint lane = gl_SubgroupInvocationID;
  const uint step = gl_SubgroupSize;
#if defined(DIR_forward)
  A top = -kInfinity;
  for (uint i = lane; i < p.dim; i += step) {
    top = max(top, p.x.v[start + i]);
  }
  top = subgroupMax(top);
  A sum = 0;
  for (uint i = lane; i < p.dim; i += step) {
    const A e = exp_f32(p.x.v[start + i] - top);
    p.y.v[start + i] = e;
    sum += e;
  }
  const A inverse = 1 / subgroupAdd(sum);
  for (uint i = lane; i < p.dim; i += step) {
    p.y.v[start + i] *= inverse;
  }
#else
  A dot = 0;
  for (uint i = lane; i < p.dim; i += step) {
    dot += p.x.v[start + i] * p.dy.v[start + i];
  }
  dot = subgroupAdd(dot);
  for (uint i = lane; i < p.dim; i += step) {
    p.y.v[start + i] = p.x.v[start + i] * (p.dy.v[start + i] - dot);
  }
#endif
}
