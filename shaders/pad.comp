//! variants BYTES=1,2,4,8
// y[i] = the element of x for this position of the padded axes, or a constant. Moves bits of any
// dtype.
#include "common.glsl"
#include "cells.glsl"
#include "index.glsl"

layout(constant_id = 1) const uint RANK = 1;
layout(constant_id = 2) const uint MODE = 0;  // of the enum PadMode
const uint CONSTANT = 0;
const uint EDGE = 1;
const uint REFLECT = 2;

layout(push_constant, scalar) uniform Push {
  Cells x;
  Cells y;
  // The padded sizes, then for each axis: the start of the part, its size, the stride in x, and the
  // phase at which a repeated part starts (see index.glsl).
  Words dims;
  uint n;
  uint per_group;
  uint first_x;
  uint low;  // the bits of the constant
  uint high;
} p;

void main() {
  LOAD_TABLE(p.dims, 0, RANK, loop)
  LOAD_STRIDES(p.dims, 0, RANK, 0, begin)
  LOAD_STRIDES(p.dims, 0, RANK, 1, part)
  LOAD_STRIDES(p.dims, 0, RANK, 2, stride)
  LOAD_STRIDES(p.dims, 0, RANK, 3, phase)
  FOR_ELEMENTS(i, p.n) {
    uint rest = i;
    uint at_x = p.first_x;
    bool there = true;
    [[unroll]] for (uint r = 0; r < RANK; ++r) {
      const uint axis = RANK - 1 - r;
      const uint upper = r + 1 == RANK ? 0 : divide(rest, loop_magic[axis], loop_shift[axis]);
      const uint position = rest - upper * loop_dim[axis];
      rest = upper;
      const int size = int(part[axis]);
      int at = int(position) - int(begin[axis]);
      if (at < 0 || at >= size) {
        if (MODE == CONSTANT) {
          there = false;
          at = 0;
        } else if (MODE == EDGE) {
          at = at < 0 ? 0 : size - 1;
        } else if (MODE == REFLECT) {
          at = at < 0 ? -at : 2 * (size - 1) - at;
        } else {
          at = int((position + phase[axis]) % part[axis]);
        }
      }
      at_x += uint(at) * stride[axis];
    }
    if (there) {
      p.y.v[i] = p.x.v[at_x];
    } else {
      p.y.v[i] = CELL(uvec2(p.low, p.high));
    }
  }
}
