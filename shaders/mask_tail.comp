//! variants T=f32,f16
#version 460
#extension GL_GOOGLE_include_directive : require
// y = x before the count of an axis, fill behind it. Bits, not numbers: f16 stands for any 16 of them, f32 for any 32.
#include "common.glsl"
#include "step.glsl"
#include "count.glsl"

#if defined(T_f16)
#define Cells Elements
#define CELL(x) uint16_t(x)
#else
#define Cells Words
#define CELL(x) (x)
#endif

layout(push_constant, scalar) uniform Push {
  Cells x;
  Cells y;
  Step step;
  uint at_count;
  uint n;
  uint per_group;
  uint size;   // of the axis
  uint inner;  // elements behind one step of the axis
  uint fill;
} p;

void main() {
  const uint first = group_index() * p.per_group;
  const uint end = min(first + p.per_group, p.n);
  const uint count = extent(p.step, p.at_count, p.size);
  for (uint i = first + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x) {
    const uint x = i / p.inner % p.size < count ? uint(p.x.v[i]) : p.fill;
    p.y.v[i] = CELL(x);
  }
}
