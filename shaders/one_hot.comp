//! variants BYTES=1,2,4,8
#version 460
#extension GL_GOOGLE_include_directive : require
// y[i] is one if indices[i . strides 0] equals the position i . strides 1 along the new axis.
// Negative indices count from its end.
#include "common.glsl"
#include "cells.glsl"
#include "index.glsl"

layout(constant_id = 1) const uint RANK = 1;

layout(push_constant, scalar) uniform Push {
  Ints indices;
  Cells y;
  Words dims;  // of two operands, see index.glsl
  uint n;
  uint per_group;
  uint depth;
  uint low;  // the bits of a one
  uint high;
} p;

void main() {
  const uint first = group_index() * p.per_group;
  const uint end = min(first + p.per_group, p.n);
  LOAD_TABLE(p.dims, 0, RANK, loop)
  LOAD_STRIDES(p.dims, 0, RANK, 0, stride_index)
  LOAD_STRIDES(p.dims, 0, RANK, 1, stride_position)
  for (uint i = first + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x) {
    uint at_index;
    uint position;
    OFFSETS_OF_TWO(i, RANK, loop, stride_index, stride_position, at_index, position)
    const int index = p.indices.v[at_index];
    const bool hot = (index < 0 ? index + int(p.depth) : index) == int(position);
    p.y.v[i] = CELL(hot ? uvec2(p.low, p.high) : uvec2(0));
  }
}
