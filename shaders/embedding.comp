//! variants BYTES=2,4
// y[i] = table[ids[i]], one subgroup per id. An out-of-range id gives zeros and is reported.
#include "common.glsl"
#include "cells.glsl"
#include "step.glsl"
#include "bad_index.glsl"

layout(push_constant, scalar) uniform Push {
  Cells table;
  Ints ids;
  Cells y;
  Step step;
  uint count;
  uint rows;
  uint n;  // elements per row
  uint node;
} p;

void main() {
  ROW_OF_SUBGROUP(i, p.count)
  const int id = p.ids.v[i];
  const bool inside = id >= 0 && uint(id) < p.rows;
  const uint row = inside ? uint(id) : 0;
  for (uint c = gl_SubgroupInvocationID; c < p.n; c += gl_SubgroupSize) {
    if (inside) {  // no `?:`, which would compute with the bits and so need shaderInt16
      p.y.v[i * p.n + c] = p.table.v[row * p.n + c];
    } else {
      p.y.v[i * p.n + c] = CELL(uvec2(0));
    }
  }
  if (!inside && subgroupElect()) {
    bad_index(p.step, p.node, id);
  }
}
