//! variants BYTES=1,2,4,8
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
  LOAD_LOOP(p.dims, 2)
  FOR_ELEMENTS(i, p.n) {
    LOOP_OFFSETS(i, 2, at)
    p.y.v[p.first_y + at[1]] = p.x.v[p.first_x + at[0]];
  }
}
