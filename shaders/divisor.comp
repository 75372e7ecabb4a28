//! variants BYTES=1,4,8
// Integers cannot be divided by 0: reports a zero divisor as an out-of-range index.
#include "common.glsl"
#include "cells.glsl"
#include "step.glsl"
#include "bad_index.glsl"

#if defined(BYTES_8)
#define is_zero(cell) ((cell) == uvec2(0))
#else
#define is_zero(cell) (uint(cell) == 0)
#endif

layout(push_constant, scalar) uniform Push {
  Cells b;
  Step step;
  uint n;
  uint per_group;
  uint node;
} p;

void main() {
  FOR_ELEMENTS(i, p.n) {
    if (is_zero(p.b.v[i])) {
      bad_index(p.step, p.node, 0);
    }
  }
}
