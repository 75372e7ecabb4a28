//! variants KIND=layer,rms T=f32,f16,bf16
// One subgroup per row of n elements.
//   layer  y = (x - mean x) / sqrt(var x + eps) * gamma + beta
//   rms    y = x / sqrt(mean x^2 + eps) * gamma
#include "common.glsl"
#include "moments.glsl"

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
  ROW_OF_SUBGROUP(row, p.rows)
  const uint start = row * p.n;
  const uint lane = gl_SubgroupInvocationID;
  A mean;
  A inverse;
  moments(p.x, start, p.n, p.eps, mean, inverse);
  for (uint i = lane; i < p.n; i += gl_SubgroupSize) {
    const A scaled = (read(p.x, start + i) - mean) * inverse * read(p.gamma, i);
#if defined(KIND_layer)
    write(p.y, start + i, scaled + read(p.beta, i));
#else
    write(p.y, start + i, scaled);
#endif
  }
}
