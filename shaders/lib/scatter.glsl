// Lines of ScatterElements: one invocation per line along the axis writes its updates in order. The
// shader defines Data, Updates and join(y, at, updates, from).
#include "bad_index.glsl"

layout(constant_id = 1) const uint RANK = 1;

layout(push_constant, scalar) uniform Push {
  Data y;
  Ints indices;
  Updates updates;
  Step step;
  Words dims;  // of data, indices and updates without the axis, see index.glsl
  uint lines;
  uint first;  // updates [first, end) of each line
  uint end;
  uint size;  // of the axis in the data
  uint stride_y;
  uint stride_index;
  uint stride_update;
  uint node;
} p;

void main() {
  LOAD_LOOP(p.dims, 3)
  const uint line = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (line >= p.lines) {
    return;
  }
  LOOP_OFFSETS(line, 3, at)
  for (uint k = p.first; k < p.end; ++k) {
    const int index = p.indices.v[at[1] + k * p.stride_index];
    const int element = index < 0 ? index + int(p.size) : index;
    if (element >= 0 && uint(element) < p.size) {
      join(p.y, at[0] + uint(element) * p.stride_y, p.updates, at[2] + k * p.stride_update);
    } else {
      bad_index(p.step, p.node, index);
    }
  }
}
