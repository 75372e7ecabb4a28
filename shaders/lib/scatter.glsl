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
  LOAD_TABLE(p.dims, 0, RANK, loop)
  LOAD_STRIDES(p.dims, 0, RANK, 0, line_y)
  LOAD_STRIDES(p.dims, 0, RANK, 1, line_index)
  LOAD_STRIDES(p.dims, 0, RANK, 2, line_update)
  const uint line = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (line >= p.lines) {
    return;
  }
  uint rest = line;
  uint at_y = 0;
  uint at_index = 0;
  uint at_update = 0;
  [[unroll]] for (uint r = 0; r < RANK; ++r) {
    const uint axis = RANK - 1 - r;
    const uint upper = r + 1 == RANK ? 0 : divide(rest, loop_magic[axis], loop_shift[axis]);
    const uint at = rest - upper * loop_dim[axis];
    rest = upper;
    at_y += at * line_y[axis];
    at_index += at * line_index[axis];
    at_update += at * line_update[axis];
  }
  for (uint k = p.first; k < p.end; ++k) {
    const int index = p.indices.v[at_index + k * p.stride_index];
    const int element = index < 0 ? index + int(p.size) : index;
    if (element >= 0 && uint(element) < p.size) {
      join(p.y, at_y + uint(element) * p.stride_y, p.updates, at_update + k * p.stride_update);
    } else {
      bad_index(p.step, p.node, index);
    }
  }
}
