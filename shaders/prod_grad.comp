//! variants T=f32,f16,bf16
// dx[i] = dy * product of the other elements of its group. One invocation per group multiplies the
// product of the elements before each element with the product of those behind it.
#include "common.glsl"
#include "index.glsl"
#include "groups.glsl"

layout(push_constant, scalar) uniform Push {
  Elements x;
  Elements dy;
  Elements dx;
  Floats products;  // dx itself if it is f32
  Words dims;  // see groups.glsl
  uint n;  // groups
  uint terms;  // elements per group
} p;

void main() {
  LOAD_GROUPS(p.dims)
  const uint o = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (o >= p.n) {
    return;
  }
  const uint base = KEPT_OFFSET(o);
  A product = 1;
  for (uint i = 0; i < p.terms; ++i) {
    const uint at = base + GONE_OFFSET(i);
    p.products.v[at] = product;
    product *= read(p.x, at);
  }
  product = read(p.dy, o);
  for (uint i = 0; i < p.terms; ++i) {
    const uint at = base + GONE_OFFSET(p.terms - 1 - i);
    write(p.dx, at, p.products.v[at] * product);
    product *= read(p.x, at);
  }
}
