//! variants
#version 460
#extension GL_GOOGLE_include_directive : require
//   g = grad * scale
//   w = w * (1 - learning_rate * weight_decay) - learning_rate * sign(beta1 * m + (1 - beta1) * g)
//   m = beta2 * m + (1 - beta2) * g
// One workgroup per chunk of a storage, all storages in one dispatch. Nothing happens after an
// error.
#include "common.glsl"
#include "step_lion.glsl"

struct Chunk {
  Floats w;
  Floats g;
  Floats m;
  uint count;
  uint padding;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Chunks { Chunk v[]; };

layout(push_constant, scalar) uniform Push {
  Chunks chunks;
  Floats scale;
  STEP_WORDS
  uint count;
  float beta1;
  float beta2;
  float weight_decay;
  float rate_factor;
} p;

void main() {
  const uint number = group_index();
  if (number >= p.count || p.step.error != 0 || step_non_finite != 0) {
    return;
  }
  Chunk chunk = p.chunks.v[clamp_index(number, p.count)];
  const A rate = step_learning_rate * p.rate_factor;
  const A keep = 1 - rate * p.weight_decay;
  const A scale = p.scale.v[0];
  for (uint i = gl_LocalInvocationID.x; i < chunk.count; i += gl_WorkGroupSize.x) {
    const A g = chunk.g.v[i] * scale;
    const A m = chunk.m.v[i];
    const A direction = p.beta1 * m + (1 - p.beta1) * g;
    // What is not a number stays so.
    const A s = direction > 0 ? 1 : direction < 0 ? -1 : direction;
    const A next = chunk.w.v[i] * keep - rate * s;
    chunk.m.v[i] = p.beta2 * m + (1 - p.beta2) * g;
    chunk.w.v[i] = next;
    if (isnan(next) || isinf(next)) {
      set_step_weights_non_finite(1);
    }
  }
}
