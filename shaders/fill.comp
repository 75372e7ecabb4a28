//! variants BYTES=1,2,4,8
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
  FOR_ELEMENTS(i, p.n) {
    p.y.v[i] = CELL(uvec2(p.low, p.high));
  }
}
