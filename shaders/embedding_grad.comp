//! variants OVER=rows,ids
// dtable[r] = sum of dy[i] over the i with ids[i] == r, in increasing order of i, without atomics.
//   rows  one subgroup per table row searches all ids (few rows)
//   ids   one subgroup per id: the first subgroup with an id value adds all its rows; the table
//         starts as zeros
#include "common.glsl"
#extension GL_KHR_shader_subgroup_ballot : require

layout(push_constant, scalar) uniform Push {
  Ints ids;
  Floats dy;
  Floats dtable;
  uint count;
  uint rows;
  uint n;  // elements per row
  uint blocks;  // blocks of S columns per row
  uint first;  // adds ids [first, end) to the sums of ids before `first`
  uint end;
} p;

// The lanes of ids [i, i + S) below `end` that equal `row`.
uvec4 matches(uint i, uint end, int row) {
  const uint at = i + gl_SubgroupInvocationID;
  return subgroupBallot(at < end && p.ids.v[clamp_index(at, p.count)] == row);
}

void main() {
  const uint number = subgroup_index() / p.blocks;
  const uint column = subgroup_index() % p.blocks * gl_SubgroupSize + gl_SubgroupInvocationID;
#if defined(OVER_rows)
  if (number >= p.rows) {
    return;
  }
  const int row = int(number);
#else
  const uint own = p.first + number;
  if (own >= p.end) {
    return;
  }
  const int row = p.ids.v[clamp_index(own, p.count)];
  if (row < 0 || uint(row) >= p.rows) {
    return;
  }
  // Only the first of these ids with its value continues.
  for (uint i = p.first; i < own; i += gl_SubgroupSize) {
    const uvec4 earlier = matches(i, own, row);
    if ((earlier.x | earlier.y) != 0) {
      return;
    }
  }
#endif
  const uint at = uint(clamp(row, 0, int(p.rows) - 1)) * p.n + column;
  const bool inside = column < p.n;
#if defined(OVER_rows)
  A sum = inside && p.first > 0 ? p.dtable.v[at] : 0;
  uint i = p.first;
#else
  A sum = inside ? p.dtable.v[at] : 0;
  uint i = p.first + number / gl_SubgroupSize * gl_SubgroupSize;
#endif
  for (; i < p.end; i += gl_SubgroupSize) {
    uvec4 found = matches(i, p.end, row);
    while ((found.x | found.y) != 0) {
      const uint bit = found.x != 0 ? uint(findLSB(found.x)) : 32 + uint(findLSB(found.y));
      if (bit < 32) {
        found.x &= found.x - 1;
      } else {
        found.y &= found.y - 1;
      }
      sum += inside ? p.dy.v[(i + bit) * p.n + column] : 0;
    }
  }
  if (inside) {
    p.dtable.v[at] = sum;
  }
}
