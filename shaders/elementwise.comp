//! variants T=f32,f16,bf16 OUT=same,truth
// y[i] = f(a[i], b[i], c[i]) for operands of the same shape. Unused operands are not read.
// Comparisons write bool.
#if defined(OUT_truth)
#extension GL_EXT_shader_8bit_storage : require
#endif
#include "common.glsl"
#include "functions.glsl"
#include "results.glsl"

layout(push_constant, scalar) uniform Push {
  Elements a;
  Elements b;
  Elements c;
  Results y;
  uint n;
  uint per_group;
  float constant_p;
  float constant_q;
} p;

void main() {
  FOR_ELEMENTS(i, p.n) {
    store(p.y, i, call(read(p.a, i), read(p.b, i), read(p.c, i), p.constant_p, p.constant_q));
  }
}
