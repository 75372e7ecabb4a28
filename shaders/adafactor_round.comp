//! variants T=f16,bf16
// Rounds the 16-bit weights of a storage from their masters, after Adafactor updated these. After
// an error or a non-finite gradient, the weights do not change.
#include "common.glsl"
#include "step_adafactor.glsl"

layout(push_constant, scalar) uniform Push {
  Floats masters;
  Elements weights;
  STEP_WORDS
  uint n;
  uint per_group;
} p;

void main() {
  if (p.step.error != 0 || step_non_finite != 0) {
    return;
  }
  FOR_ELEMENTS(i, p.n) {
    write(p.weights, i, p.masters.v[i]);
  }
}
