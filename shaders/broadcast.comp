//! variants T=f32,f16,bf16 OUT=same,truth
#version 460
#extension GL_GOOGLE_include_directive : require
// y[i] = f(a, b, c). a and b broadcast by the rules of NumPy; c has the shape of y. The host merges
// the axes and gives each operand strides, which are 0 on broadcast axes.
#if defined(OUT_truth)
#extension GL_EXT_shader_8bit_storage : require
#endif
#include "common.glsl"
#include "functions.glsl"
#include "index.glsl"
#include "results.glsl"

layout(constant_id = 2) const uint RANK = 1;

layout(push_constant, scalar) uniform Push {
  Elements a;
  Elements b;
  Elements c;
  Results y;
  Words dims;  // of two operands, see index.glsl
  uint n;
  uint per_group;
  uint has_c;
} p;

void main() {
  const uint first = group_index() * p.per_group;
  const uint end = min(first + p.per_group, p.n);
  LOAD_TABLE(p.dims, 0, RANK, loop)
  LOAD_STRIDES(p.dims, 0, RANK, 0, stride_a)
  LOAD_STRIDES(p.dims, 0, RANK, 1, stride_b)
  for (uint i = first + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x) {
    uint at_a;
    uint at_b;
    OFFSETS_OF_TWO(i, RANK, loop, stride_a, stride_b, at_a, at_b)
    store(p.y, i, call(read(p.a, at_a), read(p.b, at_b), read(p.c, p.has_c * i), 0, 0));
  }
}
