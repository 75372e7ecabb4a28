//! variants BYTES=1,2,4,8
// y[.., position + r, ..] = rows[.., r, ..] for r below the number of valid rows. Moves bits of any
// dtype. If a row would be behind the end of the state, nothing is written and an out-of-range
// index is reported.
#include "common.glsl"
#include "cells.glsl"
#include "step_write_rows.glsl"
#include "bad_index.glsl"
#include "count.glsl"

layout(push_constant, scalar) uniform Push {
  Cells rows;
  Cells y;
  STEP_WORDS
  uint at_count;
  uint n;  // elements of all rows
  uint per_group;
  uint most;  // maximum number of rows
  uint size;  // rows of the state
  uint inner;  // elements per row
  uint node;
} p;

void main() {
  const uint count = extent(p.step, p.at_count, p.most);
  const uint position = step_position;
  if (position > p.size - count) {
    if (group_index() == 0 && gl_LocalInvocationID.x == 0) {
      const uint behind = max(count, 1u) - 1;
      bad_index(p.step, p.node, int(min(position, 0x7FFFFFFFu - behind) + behind));
    }
    return;
  }
  FOR_ELEMENTS(i, p.n) {
    const uint row = i / p.inner;
    const uint r = row % p.most;
    if (r < count) {
      p.y.v[(row / p.most * p.size + position + r) * p.inner + i % p.inner] = p.rows.v[i];
    }
  }
}
