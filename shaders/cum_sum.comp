//! variants T=f32,f16,bf16,i8,u8,i32,i64
#version 460
#extension GL_GOOGLE_include_directive : require
// Running sums along lines of `size` elements, `step` apart: an invocation per line.
#include "common.glsl"
#include "number.glsl"

layout(constant_id = 1) const uint EXCLUSIVE = 0;
layout(constant_id = 2) const uint REVERSE = 0;

layout(push_constant, scalar) uniform Push {
  Numbers x;
  Numbers y;
  uint lines;
  uint size;
  uint step;
} p;

void main() {
  const uint line = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (line >= p.lines) {
    return;
  }
  const uint begin = line / p.step * p.size * p.step + line % p.step;
  N sum = kZero;
  for (uint k = 0; k < p.size; ++k) {
    const uint at = begin + (REVERSE != 0 ? p.size - 1 - k : k) * p.step;
    const N next = sum_of(sum, load(p.x, at));
    store(p.y, at, EXCLUSIVE != 0 ? sum : next);
    sum = next;
  }
}
