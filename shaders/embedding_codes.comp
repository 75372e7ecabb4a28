//! variants T=f32,f16,bf16
// y[i] = table[ids[i]] of a quantized table, one subgroup per id. An out-of-range id gives zeros
// and is reported.
#include "common.glsl"
layout(constant_id = 1) const uint FORMAT = 255;  // see codes.glsl
#include "codes.glsl"
#include "step.glsl"
#include "bad_index.glsl"

layout(push_constant, scalar) uniform Push {
  CodeTable table;
  Ints ids;
  Elements y;
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
    write(p.y, i * p.n + c, inside ? decode(p.table, row, c) : 0);
  }
  if (!inside && subgroupElect()) {
    bad_index(p.step, p.node, id);
  }
}
