//! variants T=f32,f16,bf16,i8,u8,i32,i64
// y[o] = product (sum) of the elements of a group: one subgroup per group, then a fixed tree over
// its lanes.
#include "common.glsl"
#include "index.glsl"
#include "groups.glsl"
#include "number.glsl"

layout(constant_id = 3) const uint PRODUCT = 0;

layout(push_constant, scalar) uniform Push {
  Numbers x;
  Numbers y;
  Words dims;  // see groups.glsl
  uint n;  // groups
  uint terms;  // elements per group
} p;

N joined(N a, N b) { return PRODUCT != 0 ? product_of(a, b) : sum_of(a, b); }

void main() {
  LOAD_GROUPS(p.dims)
  const uint o = subgroup_index();
  if (o >= p.n) {
    return;
  }
  const uint base = KEPT_OFFSET(o);
  N total = PRODUCT != 0 ? kOne : kZero;
  for (uint i = gl_SubgroupInvocationID; i < p.terms; i += gl_SubgroupSize) {
    total = joined(total, load(p.x, base + GONE_OFFSET(i)));
  }
  for (uint distance = gl_SubgroupSize / 2; distance > 0; distance /= 2) {
    total = joined(total, subgroupShuffleXor(total, distance));
  }
  if (subgroupElect()) {
    store(p.y, o, total);
  }
}
