//! variants BYTES=1,2,4,8
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
  LOAD_LOOP(p.dims, 3)
  FOR_ELEMENTS(i, p.n) {
    LOOP_OFFSETS(i, 3, at)
    if (uint(p.condition.v[at[0]]) != 0) {
      p.y.v[i] = p.a.v[at[1]];
    } else {
      p.y.v[i] = p.b.v[at[2]];
    }
  }
}
