//! variants T=f32,f16,bf16
#version 460
#extension GL_GOOGLE_include_directive : require
// y[i] = f(a[i], b[i]) for operands of one shape; b is not read by functions of one operand.
#include "common.glsl"
#include "functions.glsl"

layout(constant_id = 1) const uint FUNCTION = 0;  // of the enum Function

layout(push_constant, scalar) uniform Push {
  Elements a;
  Elements b;
  Elements y;
  uint n;
  uint per_group;
  float constant_p;
  float constant_q;
} p;

void main() {
  const uint first = group_index() * p.per_group;
  const uint end = min(first + p.per_group, p.n);
  for (uint i = first + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x) {
    write(p.y, i, call(FUNCTION, read(p.a, i), read(p.b, i), p.constant_p, p.constant_q));
  }
}
