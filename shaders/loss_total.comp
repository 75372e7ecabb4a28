//! variants
// loss = sum of the losses of all terms; for the mean, divided by the sum of their weights. One
// subgroup, in a fixed order.
#include "common.glsl"
#include "loss.glsl"

layout(push_constant, scalar) uniform Push {
  Floats terms;  // [n, 2]: loss, weight
  Floats loss;
  uint n;
  uint reduction;
} p;

void main() {
  if (group_index() > 0) {
    return;
  }
  A loss = 0;
  A weight = 0;
  for (uint i = gl_SubgroupInvocationID; i < p.n; i += gl_SubgroupSize) {
    loss += p.terms.v[2 * i];
    weight += p.terms.v[2 * i + 1];
  }
  loss = subgroupAdd(loss);
  weight = subgroupAdd(weight);
  if (subgroupElect()) {
    p.loss.v[0] = p.reduction == kMean && weight != 0 ? loss / weight : loss;
  }
}
