//! variants KIND=layer,rms
#version 460
#extension GL_GOOGLE_include_directive : require
// One subgroup per row of n elements.
//   layer  y = (x - mean x) / sqrt(var x + eps) * gamma + beta
//   rms    y = x / sqrt(mean x^2 + eps) * gamma
#include "common.glsl"

layout(push_constant, scalar) uniform Push {
  Floats x;
  Floats gamma;
  Floats beta;
  Floats y;
  uint rows;
  uint n;
  float eps;
} p;

void main() {
  const uint row = clamp_index(subgroup_index(), p.rows);
  if (subgroup_index() >= p.rows) {
    return;
  }
  const uint start = row * p.n;
  const uint lane = gl_SubgroupInvocationID;
  A mean = 0;
#if defined(KIND_layer)
  for (uint i = lane; i < p.n; i += gl_SubgroupSize) {
    mean += p.x.v[start + i];
  }
  mean = subgroupAdd(mean) / A(p.n);
#endif
  A squares = 0;
  for (uint i = lane; i < p.n; i += gl_SubgroupSize) {
    const A d = p.x.v[start + i] - mean;
    squares += d * d;
  }
  const A inverse = 1 / sqrt(subgroupAdd(squares) / A(p.n) + p.eps);
  for (uint i = lane; i < p.n; i += gl_SubgroupSize) {
    const A scaled = (p.x.v[start + i] - mean) * inverse * p.gamma.v[i];
#if defined(KIND_layer)
    p.y.v[start + i] = scaled + p.beta.v[i];
#else
    p.y.v[start + i] = scaled;
#endif
  }
}
