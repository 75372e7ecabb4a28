//! variants KIND=layer,rms T=f32,f16,bf16
#version 460
#extension GL_GOOGLE_include_directive : require
// One subgroup per row of n elements.
//   layer  y = (x - mean x) / sqrt(var x + eps) * gamma + beta
//   rms    y = x / sqrt(mean x^2 + eps) * gamma
#include "common.glsl"

layout(push_constant, scalar) uniform Push {
  Elements x;
  Elements gamma;
  Elements beta;
  Elements y;
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
    mean += read(p.x, start + i);
  }
  mean = subgroupAdd(mean) / A(p.n);
#endif
  A squares = 0;
  for (uint i = lane; i < p.n; i += gl_SubgroupSize) {
    const A d = read(p.x, start + i) - mean;
    squares += d * d;
  }
  const A inverse = 1 / sqrt(subgroupAdd(squares) / A(p.n) + p.eps);
  for (uint i = lane; i < p.n; i += gl_SubgroupSize) {
    const A scaled = (read(p.x, start + i) - mean) * inverse * read(p.gamma, i);
#if defined(KIND_layer)
    write(p.y, start + i, scaled + read(p.beta, i));
#else
    write(p.y, start + i, scaled);
#endif
  }
}
