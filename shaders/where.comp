//! variants BYTES=1,2,4,8
#version 460
#extension GL_GOOGLE_include_directive : require
// y[i] = condition ? a : b. All three operands broadcast by the rules of NumPy. Moves bits of any
// dtype.
#extension GL_EXT_shader_8bit_storage : require
#include "common.glsl"
#include "cells.glsl"
#include "index.glsl"

layout(constant_id = 1) const uint RANK = 1;

layout(buffer_reference, scalar, buffer_reference_align = 1) buffer Truths { uint8_t v[]; };
layout(push_constant, scalar) uniform Push {
  Truths condition;
  Cells a;
  Cells b;
  Cells y;
  Words dims;  // of three operands, see index.glsl
  uint n;
  uint per_group;
} p;

void main() {
  const uint first = group_index() * p.per_group;
  const uint end = min(first + p.per_group, p.n);
  LOAD_TABLE(p.dims, 0, RANK, loop)
  LOAD_STRIDES(p.dims, 0, RANK, 0, stride_condition)
  LOAD_STRIDES(p.dims, 0, RANK, 1, stride_a)
  LOAD_STRIDES(p.dims, 0, RANK, 2, stride_b)
  for (uint i = first + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x) {
    uint rest = i;
    uint at_condition = 0;
    uint at_a = 0;
    uint at_b = 0;
    [[unroll]] for (uint r = 0; r < RANK; ++r) {
      const uint axis = RANK - 1 - r;
      const uint upper = r + 1 == RANK ? 0 : divide(rest, loop_magic[axis], loop_shift[axis]);
      const uint at = rest - upper * loop_dim[axis];
      rest = upper;
      at_condition += at * stride_condition[axis];
      at_a += at * stride_a[axis];
      at_b += at * stride_b[axis];
    }
    if (uint(p.condition.v[at_condition]) != 0) {
      p.y.v[i] = p.a.v[at_a];
    } else {
      p.y.v[i] = p.b.v[at_b];
    }
  }
}
