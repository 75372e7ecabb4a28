//! variants T=f32,f16,bf16,i8,u8,i32,i64
#version 460
#extension GL_GOOGLE_include_directive : require
// An invocation per element counts how many of its line come before it: that is its place in the result. NaN is the largest number.
#include "common.glsl"
#include "number.glsl"

layout(constant_id = 1) const uint SMALLEST = 0;

layout(push_constant, scalar) uniform Push {
  Numbers x;
  Numbers values;
  Ints indices;
  Words places;  // what earlier dispatches counted
  uint n;
  uint size;  // of a line
  uint step;    // from one element of it to the next
  uint k;
  uint first;  // elements [first, end) of the lines are looked at
  uint end;
} p;

void main() {
  const uint i = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (i >= p.n) {
    return;
  }
  const uint own = i / p.step % p.size;
  const uint outer = i / (p.size * p.step);
  const uint begin = outer * p.size * p.step + i % p.step;
  const N value = load(p.x, i);
  const Order order = order_of(value, kNanLast);
  uint place = 0;
  if (p.first > 0) {
    place = p.places.v[i];
  }
  for (uint j = p.first; j < p.end; ++j) {
    const Order other = order_of(load(p.x, begin + j * p.step), kNanLast);
    const bool earlier = SMALLEST != 0 ? before(other, order) : before(order, other);
    place += earlier || (other == order && j < own) ? 1 : 0;
  }
  if (p.end < p.size) {
    p.places.v[i] = place;
  } else if (place < p.k) {
    const uint to = (outer * p.k + place) * p.step + i % p.step;
    store(p.values, to, value);
    p.indices.v[to] = int(own);
  }
}
