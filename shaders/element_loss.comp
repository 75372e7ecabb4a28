//! variants PART=each,parts,grad T=f32,f16,bf16
// Elementwise losses against a target.
//   each   y[i] = loss(x[i], target[i])
//   parts  subgroup k adds the losses of elements k, k + parts, ... in rounds of its lanes; a part
//          also counts its elements
//   grad   dx[i] = slope(x[i], target[i]) * dloss
#include "common.glsl"
#include "formulas.glsl"

// Mean squared error, binary cross entropy, Huber.
layout(constant_id = 1) const uint LOSS_NUMBER = 0;

layout(push_constant, scalar) uniform Push {
  Elements x;
  Elements target;
  Floats y;  // losses, or parts [parts, 2]
  Floats dloss;
  Elements dx;
  uint n;
  uint per_group;
  uint parts;
  uint each;  // 1: dloss has one value per element
  float divisor;
  float constant_p;
} p;

#define LOSS(name) F name##_loss(F x, F t, F p)
#define SLOPE(name) F name##_slope(F x, F t, F p)
#include "losses.inc"

A loss(A x, A t) {
  switch (LOSS_NUMBER) {
    case 0: return mean_squared_error_loss(x, t, 0);
    case 1: return binary_cross_entropy_loss(x, t, 0);
    default: return huber_loss(x, t, p.constant_p);
  }
}
A slope(A x, A t) {
  switch (LOSS_NUMBER) {
    case 0: return mean_squared_error_slope(x, t, 0);
    case 1: return binary_cross_entropy_slope(x, t, 0);
    default: return huber_slope(x, t, p.constant_p);
  }
}

#if defined(PART_parts)
void main() {
  const uint part = subgroup_index();
  if (part >= p.parts) {
    return;
  }
  A sum = 0;
  A count = 0;
  for (uint i = part * gl_SubgroupSize + gl_SubgroupInvocationID; i < p.n; i += p.parts * gl_SubgroupSize) {
    sum += loss(read(p.x, i), read(p.target, i));
    count += 1;
  }
  sum = subgroupAdd(sum);
  count = subgroupAdd(count);
  if (subgroupElect()) {
    p.y.v[2 * part] = sum;
    p.y.v[2 * part + 1] = count;
  }
}
#else
void main() {
  FOR_ELEMENTS(i, p.n) {
#if defined(PART_each)
    p.y.v[i] = loss(read(p.x, i), read(p.target, i));
#else
    const A d = p.dloss.v[p.each != 0 ? i : 0] / p.divisor;
    write(p.dx, i, slope(read(p.x, i), read(p.target, i)) * d);
#endif
  }
}
#endif
