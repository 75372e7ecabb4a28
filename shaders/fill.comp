//! variants BYTES=1,2,4,8
#version 460
#extension GL_GOOGLE_include_directive : require
// y[i] = value, as bits of any dtype.
#include "common.glsl"
#include "cells.glsl"

layout(push_constant, scalar) uniform Push {
  Cells y;
  uint n;
  uint per_group;
  uint low;
  uint high;
} p;

void main() {
  const uint first = group_index() * p.per_group;
  const uint end = min(first + p.per_group, p.n);
  for (uint i = first + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x) {
    p.y.v[i] = CELL(uvec2(p.low, p.high));
  }
}
