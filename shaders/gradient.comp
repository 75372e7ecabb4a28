//! variants T=f32,f16,bf16
// Adds to gradient storages, or sets them to zero. The step buffer tells whether a micro-batch adds
// to the previous micro-batch.
#include "common.glsl"
#include "step.glsl"

layout(constant_id = 1) const uint FUNCTION = 0;  // 0 accumulate, 1 zero

layout(push_constant, scalar) uniform Push {
  Floats grad;
  Elements contribution;  // of the storage type
  Step step;
  uint n;
  uint per_group;
  uint is_first;  // contribution of this submission
} p;

void main() {
  const bool keep = p.step.accumulate != 0 || (FUNCTION == 0 && p.is_first == 0);
  FOR_ELEMENTS(i, p.n) {
    const A add = FUNCTION == 0 ? read(p.contribution, i) : 0;
    if (FUNCTION == 0 || !keep) {
      p.grad.v[i] = keep ? p.grad.v[i] + add : add;
    }
  }
}
