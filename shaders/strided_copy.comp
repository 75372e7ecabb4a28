//! variants BYTES=1,2,4,8
#version 460
#extension GL_GOOGLE_include_directive : require
// y[first_y + at . strides_y] = x[first_x + at . strides_x] for every index `at`. Moves bits of any
// dtype. Transpose, Slice, SliceGrad, Concat and BroadcastTo use it with different strides.
#include "common.glsl"
#include "cells.glsl"
#include "index.glsl"

layout(constant_id = 1) const uint RANK = 1;

layout(push_constant, scalar) uniform Push {
  Cells x;
  Cells y;
  Words dims;  // of two operands, see index.glsl
  uint n;
  uint per_group;
  uint first_x;
  uint first_y;
} p;

void main() {
  const uint first = group_index() * p.per_group;
  const uint end = min(first + p.per_group, p.n);
  LOAD_TABLE(p.dims, 0, RANK, loop)
  LOAD_STRIDES(p.dims, 0, RANK, 0, stride_x)
  LOAD_STRIDES(p.dims, 0, RANK, 1, stride_y)
  for (uint i = first + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x) {
    uint at_x;
    uint at_y;
    OFFSETS_OF_TWO(i, RANK, loop, stride_x, stride_y, at_x, at_y)
    p.y.v[p.first_y + at_y] = p.x.v[p.first_x + at_x];
  }
}
