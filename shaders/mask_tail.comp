//! variants BYTES=1,2,4,8
// y = x up to the current size of an axis, and fill behind it. Moves bits of any dtype.
#include "common.glsl"
#include "cells.glsl"
#include "step.glsl"
#include "count.glsl"

layout(push_constant, scalar) uniform Push {
  Cells x;
  Cells y;
  Step step;
  uint at_count;
  uint n;
  uint per_group;
  uint size;  // of the axis
  uint inner;  // elements per index of the axis
  uint fill_low;
  uint fill_high;
} p;

void main() {
  const uint count = extent(p.step, p.at_count, p.size);
  FOR_ELEMENTS(i, p.n) {
    if (i / p.inner % p.size < count) {
      p.y.v[i] = p.x.v[i];
    } else {
      p.y.v[i] = CELL(uvec2(p.fill_low, p.fill_high));
    }
  }
}
