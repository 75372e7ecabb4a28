//! variants
#version 460
#extension GL_GOOGLE_include_directive : require
// y[i] = f(a, b) with numpy broadcasting: the host gives merged dims with strides per operand, 0 where one stretches.
#include "common.glsl"

layout(constant_id = 1) const uint FUNCTION = 0;  // 0 add, 1 subtract, 2 multiply
layout(constant_id = 2) const uint RANK = 1;

layout(push_constant, scalar) uniform Push {
  Floats a;
  Floats b;
  Floats y;
  Words dims;  // RANK dims, then strides of a, then of b
  uint n;
  uint per_group;
} p;

void main() {
  const uint first = group_index() * p.per_group;
  const uint end = min(first + p.per_group, p.n);
  for (uint i = first + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x) {
    uint rest = i;
    uint at_a = 0;
    uint at_b = 0;
    [[unroll]] for (uint r = 0; r < RANK; ++r) {
      const uint axis = RANK - 1 - r;
      const uint dim = p.dims.v[axis];
      const uint at = r + 1 == RANK ? rest : rest % dim;
      rest = r + 1 == RANK ? 0 : rest / dim;
      at_a += at * p.dims.v[RANK + axis];
      at_b += at * p.dims.v[2 * RANK + axis];
    }
    const A x = p.a.v[at_a];
    const A z = p.b.v[at_b];
    p.y.v[i] = FUNCTION == 0 ? x + z : FUNCTION == 1 ? x - z : x * z;
  }
}
