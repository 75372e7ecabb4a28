//! variants T=f32,f16,bf16
// dx[i] = sum of dy over the padded positions that copy x[i], in order.
#include "common.glsl"
#include "index.glsl"

layout(constant_id = 1) const uint RANK = 1;
layout(constant_id = 2) const uint MODE = 0;  // of the enum PadMode
const uint EDGE = 1;
const uint REFLECT = 2;
const uint WRAP = 3;

layout(push_constant, scalar) uniform Push {
  Elements dy;
  Elements dx;
  // The sizes of x, then for each axis: the start of the part in x, its size, its start in y, the
  // size of y, and the stride in y (see index.glsl).
  Words dims;
  uint n;
  uint per_group;
} p;

// The positions of an axis that copy one element: `count` positions from `first` on, `step` apart.
// The last position can differ from this pattern.
struct Takers {
  int count;
  int first;
  int step;
  int last;
};

Takers takers_of(int i, int part, int begin, int whole) {
  Takers t;
  t.count = 0;
  t.first = 0;
  t.step = 1;
  t.last = 0;
  if (i < 0 || i >= part) {
    return t;
  }
  const int own = begin + i;
  t.count = 1;
  t.first = own;
  t.last = own;
  if (MODE == EDGE) {
    t.first = i == 0 ? 0 : own;
    t.last = i + 1 == part ? whole - 1 : own;
    t.count = t.last - t.first + 1;
  } else if (MODE == WRAP) {
    t.step = part;
    t.first = int(uint(own) % uint(part));
    t.count = int(uint(whole - 1 - t.first) / uint(part)) + 1;
    t.last = t.first + (t.count - 1) * part;
  } else if (MODE == REFLECT) {
    const int left = begin - i;
    const int right = own + 2 * (part - 1 - i);
    const bool has_left = i > 0 && left >= 0;
    const bool has_right = i + 1 < part && right < whole;
    t.count = 1 + (has_left ? 1 : 0) + (has_right ? 1 : 0);
    t.first = has_left ? left : own;
    t.step = own - t.first;
    t.last = has_right ? right : own;
  }
  return t;
}

void main() {
  LOAD_TABLE(p.dims, 0, RANK, loop)
  LOAD_STRIDES(p.dims, 0, RANK, 0, crop)
  LOAD_STRIDES(p.dims, 0, RANK, 1, part)
  LOAD_STRIDES(p.dims, 0, RANK, 2, begin)
  LOAD_STRIDES(p.dims, 0, RANK, 3, whole)
  LOAD_STRIDES(p.dims, 0, RANK, 4, stride)
  FOR_ELEMENTS(i, p.n) {
    Takers takers[RANK];
    uint terms = 1;
    uint rest = i;
    [[unroll]] for (uint r = 0; r < RANK; ++r) {
      const uint axis = RANK - 1 - r;
      const uint upper = r + 1 == RANK ? 0 : divide(rest, loop_magic[axis], loop_shift[axis]);
      const int at = int(rest - upper * loop_dim[axis]) - int(crop[axis]);
      rest = upper;
      takers[axis] = takers_of(at, int(part[axis]), int(begin[axis]), int(whole[axis]));
      terms *= uint(takers[axis].count);
    }
    A sum = 0;
    for (uint k = 0; k < terms; ++k) {
      uint left = k;
      uint at = 0;
      [[unroll]] for (uint r = 0; r < RANK; ++r) {
        const uint axis = RANK - 1 - r;
        const uint count = uint(takers[axis].count);
        const uint upper = r + 1 == RANK ? 0 : left / count;
        const int which = int(left - upper * count);
        left = upper;
        at += uint(which + 1 == int(count) ? takers[axis].last
                                           : takers[axis].first + which * takers[axis].step) *
              stride[axis];
      }
      sum += read(p.dy, at);
    }
    write(p.dx, i, sum);
  }
}
