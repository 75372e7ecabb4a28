//! variants BYTES=1,2,4,8
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
  LOAD_LOOP(p.dims, 2)
  FOR_ELEMENTS(i, p.n) {
    LOOP_OFFSETS(i, 2, at)
    const int index = p.indices.v[at[0]];
    const bool hot = (index < 0 ? index + int(p.depth) : index) == int(at[1]);
    p.y.v[i] = CELL(hot ? uvec2(p.low, p.high) : uvec2(0));
  }
}
