//! variants OVER=rows,ids
#version 460
#extension GL_GOOGLE_include_directive : require
// dtable[r] = sum of dy[i] over the i with ids[i] == r, in the order of i, without atomics.
//   rows  one subgroup per row of the table looks through all ids (few rows)
//   ids   one subgroup per id: the first one of its value adds up all of them; the table was filled with zeros
#include "common.glsl"
#extension GL_KHR_shader_subgroup_ballot : require

layout(push_constant, scalar) uniform Push {
  Ints ids;
  Floats dy;
  Floats dtable;
  uint count;
  uint rows;
  uint n;  // elements per row
} p;

// The lanes of ids [first, first + S) that hold `row`.
uvec4 matches(uint first, int row) {
  const uint i = first + gl_SubgroupInvocationID;
  return subgroupBallot(i < p.count && p.ids.v[clamp_index(i, p.count)] == row);
}

void main() {
  const uint lane = gl_SubgroupInvocationID;
  const uint number = subgroup_index();
#if defined(OVER_rows)
  if (number >= p.rows) {
    return;
  }
  const int row = int(number);
  uint first = 0;
#else
  if (number >= p.count) {
    return;
  }
  const int row = p.ids.v[clamp_index(number, p.count)];
  if (row < 0 || uint(row) >= p.rows) {
    return;
  }
  for (uint i = 0; i < number; i += gl_SubgroupSize) {
    const uvec4 earlier = matches(i, row);
    // Lanes of this step that lie before `number`.
    const uint inside = min(gl_SubgroupSize, number - i);
    const uvec2 mask = uvec2(inside >= 32 ? ~0u : (1u << inside) - 1, inside >= 64 ? ~0u : inside > 32 ? (1u << (inside - 32)) - 1 : 0u);
    if (((earlier.x & mask.x) | (earlier.y & mask.y)) != 0) {
      return;
    }
  }
  uint first = number / gl_SubgroupSize * gl_SubgroupSize;
#endif
  bool fresh = true;
  for (uint i = first; i < p.count; i += gl_SubgroupSize) {
    uvec4 found = matches(i, row);
    while ((found.x | found.y) != 0) {
      const uint bit = found.x != 0 ? uint(findLSB(found.x)) : 32 + uint(findLSB(found.y));
      if (bit < 32) {
        found.x &= found.x - 1;
      } else {
        found.y &= found.y - 1;
      }
      for (uint c = lane; c < p.n; c += gl_SubgroupSize) {
        const A add = p.dy.v[(i + bit) * p.n + c];
        p.dtable.v[uint(row) * p.n + c] = fresh ? add : p.dtable.v[uint(row) * p.n + c] + add;
      }
      fresh = false;
    }
  }
#if defined(OVER_rows)
  if (fresh) {
    for (uint c = lane; c < p.n; c += gl_SubgroupSize) {
      p.dtable.v[uint(row) * p.n + c] = 0;
    }
  }
#endif
}
