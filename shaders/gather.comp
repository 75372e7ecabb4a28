//! variants BYTES=1,2,4,8
// y[i] = data[i . strides 0 + element(indices[i . strides 1]) * stride] for every i. Negative
// indices count from the end of the axis. An out-of-range index gives zero and is reported.
#include "common.glsl"
#include "cells.glsl"
#include "index.glsl"
#include "step.glsl"
#include "bad_index.glsl"

layout(constant_id = 1) const uint RANK = 1;

layout(push_constant, scalar) uniform Push {
  Cells data;
  Ints indices;
  Cells y;
  Step step;
  Words dims;  // of two operands, see index.glsl
  uint n;
  uint per_group;
  uint size;  // of the axis
  uint stride;  // of the axis in the data
  uint node;
} p;

void main() {
  LOAD_LOOP(p.dims, 2)
  FOR_ELEMENTS(i, p.n) {
    LOOP_OFFSETS(i, 2, at)
    const int index = p.indices.v[at[1]];
    const int element = index < 0 ? index + int(p.size) : index;
    if (element >= 0 && uint(element) < p.size) {
      p.y.v[i] = p.data.v[at[0] + uint(element) * p.stride];
    } else {
      p.y.v[i] = CELL(uvec2(0));
      bad_index(p.step, p.node, index);
    }
  }
}
