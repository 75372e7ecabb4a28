//! variants
// y = loss_scale
#include "common.glsl"
#include "step_loss_scale.glsl"

layout(push_constant, scalar) uniform Push {
  Floats y;
  STEP_WORDS
} p;

void main() {
  if (group_index() == 0 && gl_LocalInvocationID.x == 0) {
    p.y.v[0] = step_loss_scale;
  }
}
