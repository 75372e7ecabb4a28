//! variants T=f32,f16,bf16,i8,u8,i32,i64 HOW=places,passes
// The first elements of lines, sorted. Among equal elements the smaller index comes first, and NaN
// counts as the largest value.
//   places  one invocation per element counts the elements of its line that precede it, up to k:
//           the position in the result
//   passes  one subgroup per line finds the first element behind the previous result
#include "common.glsl"
#include "number.glsl"

layout(constant_id = 1) const uint SMALLEST = 0;

bool comes_first(Order a, uint index_a, Order b, uint index_b) {
  return (SMALLEST != 0 ? before(a, b) : before(b, a)) || (a == b && index_a < index_b);
}

layout(push_constant, scalar) uniform Push {
  Numbers x;
  Numbers values;
  Ints indices;
  Words places;  // counts of earlier dispatches
  uint n;  // elements, or lines
  uint size;  // of a line
  uint step;  // from one element of a line to the next
  uint k;
  // elements [first, end) of the lines are compared, or result positions [first, end) are found
  uint first;
  uint end;
} p;

#if defined(HOW_places)
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
  // Behind the first k, the exact place does not matter.
  for (uint j = p.first; j < p.end && place < p.k; ++j) {
    const Order other = order_of(load(p.x, begin + j * p.step), kNanLast);
    place += comes_first(other, j, order, own) ? 1 : 0;
  }
  if (p.end < p.size) {
    p.places.v[i] = place;
  } else if (place < p.k) {
    const uint to = (outer * p.k + place) * p.step + i % p.step;
    store(p.values, to, value);
    p.indices.v[to] = int(own);
  }
}
#else
const uint kNone = 0xffffffffu;

// Combines the results of this lane and of the lane at a distance. Distances past the subgroup do
// nothing.
void join(inout Order best, inout uint index, uint distance) {
  if (distance >= gl_SubgroupSize) {
    return;
  }
  const uint from = gl_SubgroupInvocationID ^ distance;
  const Order other = subgroupShuffle(best, from);
  const uint other_index = subgroupShuffle(index, from);
  const bool takes =
      other_index != kNone && (index == kNone || comes_first(other, other_index, best, index));
  best = takes ? other : best;
  index = takes ? other_index : index;
}

void main() {
  const uint line = subgroup_index();
  if (line >= p.n) {
    return;
  }
  const uint begin = line / p.step * p.size * p.step + line % p.step;
  const uint to = line / p.step * p.k * p.step + line % p.step;
  uint last = kNone;
  if (p.first > 0) {
    last = uint(p.indices.v[to + (p.first - 1) * p.step]);
  }
  Order order_of_last = order_of(load(p.x, begin + (last == kNone ? 0 : last) * p.step), kNanLast);
  for (uint place = p.first; place < p.end; ++place) {
    uint index = kNone;
    Order best = order_of_last;
    for (uint i = gl_SubgroupInvocationID; i < p.size; i += gl_SubgroupSize) {
      const Order order = order_of(load(p.x, begin + i * p.step), kNanLast);
      const bool left = last == kNone || comes_first(order_of_last, last, order, i);
      const bool takes = left && (index == kNone || comes_first(order, i, best, index));
      best = takes ? order : best;
      index = takes ? i : index;
    }
    join(best, index, 1);
    join(best, index, 2);
    join(best, index, 4);
    join(best, index, 8);
    join(best, index, 16);
    join(best, index, 32);
    if (subgroupElect()) {
      store(p.values, to + place * p.step, load(p.x, begin + index * p.step));
      p.indices.v[to + place * p.step] = int(index);
    }
    last = index;
    order_of_last = best;
  }
}
#endif
