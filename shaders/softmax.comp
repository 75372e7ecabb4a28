//! variants DIR=forward,backward
#version 460
#extension GL_GOOGLE_include_directive : require
// Along one axis, one subgroup per row; elements of a row lie `inner` apart.
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
  uint inner;
} p;

void main() {
  const uint row = subgroup_index();
  if (row >= p.rows) {
    return;
  }
  const uint start = row / p.inner * p.inner * p.dim + row % p.inner;
  const uint lane = gl_SubgroupInvocationID;
  const uint step = gl_SubgroupSize;
#if defined(DIR_forward)
  A top = -kInfinity;
  for (uint i = lane; i < p.dim; i += step) {
    top = max(top, p.x.v[start + i * p.inner]);
  }
  top = subgroupMax(top);
  A sum = 0;
  for (uint i = lane; i < p.dim; i += step) {
    const A e = exp_f32(p.x.v[start + i * p.inner] - top);
    p.y.v[start + i * p.inner] = e;
    sum += e;
  }
  const A inverse = 1 / subgroupAdd(sum);
  for (uint i = lane; i < p.dim; i += step) {
    p.y.v[start + i * p.inner] *= inverse;
  }
#else
  A dot = 0;
  for (uint i = lane; i < p.dim; i += step) {
    dot += p.x.v[start + i * p.inner] * p.dy.v[start + i * p.inner];
  }
  dot = subgroupAdd(dot);
  for (uint i = lane; i < p.dim; i += step) {
    p.y.v[start + i * p.inner] = p.x.v[start + i * p.inner] * (p.dy.v[start + i * p.inner] - dot);
  }
#endif
}
