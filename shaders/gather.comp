//! variants BYTES=1,2,4,8
#version 460
#extension GL_GOOGLE_include_directive : require
// y[i] = data[i . strides 0 + element(indices[i . strides 1]) * stride] for every i. Negative
// indices count from the end of the axis. An out-of-range index gives zero and is reported.
#include "common.glsl"
#include "cells.glsl"
#include "index.glsl"
#include "step.glsl"
#include "bad_index.glsl"

layout(constant_id = 1) const uint RANK = 1;

layout(push_constant, scalar) uniform Push {
  Cells data;
  Ints indices;
  Cells y;
  Step step;
  Words dims;  // of two operands, see index.glsl
  uint n;
  uint per_group;
  uint size;  // of the axis
  uint stride;  // of the axis in the data
  uint node;
} p;

void main() {
  const uint first = group_index() * p.per_group;
  const uint end = min(first + p.per_group, p.n);
  LOAD_TABLE(p.dims, 0, RANK, loop)
  LOAD_STRIDES(p.dims, 0, RANK, 0, stride_data)
  LOAD_STRIDES(p.dims, 0, RANK, 1, stride_index)
  for (uint i = first + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x) {
    uint at_data;
    uint at_index;
    OFFSETS_OF_TWO(i, RANK, loop, stride_data, stride_index, at_data, at_index)
    const int index = p.indices.v[at_index];
    const int element = index < 0 ? index + int(p.size) : index;
    if (element >= 0 && uint(element) < p.size) {
      p.y.v[i] = p.data.v[at_data + uint(element) * p.stride];
    } else {
      p.y.v[i] = CELL(uvec2(0));
      bad_index(p.step, p.node, index);
    }
  }
}
