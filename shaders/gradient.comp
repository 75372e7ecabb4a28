//! variants T=f32,f16,bf16
// Adds a contribution to a gradient storage, or sets the storage to zero. If `accumulate` of the
// step buffer is set, the gradient of earlier submissions is kept.
#include "common.glsl"
#include "step.glsl"
#include "gradient.glsl"

layout(constant_id = 1) const uint FUNCTION = 0;  // 0 accumulate, 1 zero

layout(push_constant, scalar) uniform Push {
  Floats grad;
  Elements contribution;  // in the storage dtype
  Step step;
  uint n;
  uint per_group;
  uint is_first;  // 1: the first contribution of this submission
} p;

void main() {
  const bool keep = adds_to_gradient(p.step, FUNCTION == 0 ? p.is_first : 1);
  FOR_ELEMENTS(i, p.n) {
    const A add = FUNCTION == 0 ? read(p.contribution, i) : 0;
    if (FUNCTION == 0 || !keep) {
      p.grad.v[i] = keep ? p.grad.v[i] + add : add;
    }
  }
}
