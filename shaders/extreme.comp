//! variants T=f32,f16,bf16,i8,u8,i32,i64 OUT=value,index
// The largest or smallest element of each group, or its index: one subgroup per group, whose lanes
// exchange the indices of their best elements. NaN precedes every value.
#include "common.glsl"
#include "index.glsl"
#include "groups.glsl"
#include "number.glsl"

layout(constant_id = 3) const uint SMALLEST = 0;
layout(constant_id = 4) const uint LAST = 0;  // among equal elements

#if defined(OUT_index)
#define Results Ints
#else
#define Results Numbers
#endif

layout(push_constant, scalar) uniform Push {
  Numbers x;
  Results y;
  Words dims;  // see groups.glsl
  uint n;  // groups
  uint terms;  // elements per group
} p;

Order order_at(uint at) { return order_of(load(p.x, at), SMALLEST != 0 ? kNanFirst : kNanLast); }

// True if element i precedes element k.
bool beats(uint i, Order a, uint k, Order b) {
  const bool better = SMALLEST != 0 ? before(a, b) : before(b, a);
  return better || (a == b && (LAST != 0 ? i > k : i < k));
}

void main() {
  LOAD_GROUPS(p.dims)
  const uint o = subgroup_index();
  if (o >= p.n) {
    return;
  }
  const uint base = KEPT_OFFSET(o);
  // A lane without its own element uses the element of another lane.
  uint best = min(gl_SubgroupInvocationID, p.terms - 1);
  Order best_order = order_at(base + GONE_OFFSET(best));
  for (uint i = gl_SubgroupInvocationID + gl_SubgroupSize; i < p.terms; i += gl_SubgroupSize) {
    const Order other = order_at(base + GONE_OFFSET(i));
    if (beats(i, other, best, best_order)) {
      best = i;
      best_order = other;
    }
  }
  for (uint distance = gl_SubgroupSize / 2; distance > 0; distance /= 2) {
    const uint i = subgroupShuffleXor(best, distance);
    const Order other = subgroupShuffleXor(best_order, distance);
    if (beats(i, other, best, best_order)) {
      best = i;
      best_order = other;
    }
  }
  if (subgroupElect()) {
#if defined(OUT_index)
    p.y.v[o] = int(best);
#else
    store(p.y, o, load(p.x, base + GONE_OFFSET(best)));
#endif
  }
}
