//! variants T=f32,f16,bf16
#version 460
#extension GL_GOOGLE_include_directive : require
// y[i] = f(a, b) with numpy broadcasting: the host gives merged dims with strides per operand, 0 where one stretches.
#include "common.glsl"
#include "functions.glsl"
#include "index.glsl"

layout(constant_id = 1) const uint FUNCTION = 0;  // of the enum Function
layout(constant_id = 2) const uint RANK = 1;

layout(push_constant, scalar) uniform Push {
  Elements a;
  Elements b;
  Elements y;
  Words dims;  // of two operands, see index.glsl
  uint n;
  uint per_group;
} p;

void main() {
  const uint first = group_index() * p.per_group;
  const uint end = min(first + p.per_group, p.n);
  LOAD_TABLE(p.dims, 0, RANK, loop)
  LOAD_STRIDES(p.dims, 0, RANK, 0, stride_a)
  LOAD_STRIDES(p.dims, 0, RANK, 1, stride_b)
  for (uint i = first + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x) {
    uint rest = i;
    uint at_a = 0;
    uint at_b = 0;
    [[unroll]] for (uint r = 0; r < RANK; ++r) {
      const uint axis = RANK - 1 - r;
      const uint upper = r + 1 == RANK ? 0 : divide(rest, loop_magic[axis], loop_shift[axis]);
      const uint at = rest - upper * loop_dim[axis];
      rest = upper;
      at_a += at * stride_a[axis];
      at_b += at * stride_b[axis];
    }
    write(p.y, i, call(FUNCTION, read(p.a, at_a), read(p.b, at_b), 0, 0));
  }
}
