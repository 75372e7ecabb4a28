//! variants
#version 460
#extension GL_GOOGLE_include_directive : require
//   g = grad * scale + weight_decay * w,  s = s + g^2
//   w = w - learning_rate / (1 + (update - 1) * rate_decay) * g / (sqrt(s) + eps)
// One workgroup per chunk of a storage, all storages in one dispatch. Nothing happens after an
// error.
#include "common.glsl"
#include "step_adagrad.glsl"

struct Chunk {
  Floats w;
  Floats g;
  Floats s;
  uint count;
  uint padding;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Chunks { Chunk v[]; };

layout(push_constant, scalar) uniform Push {
  Chunks chunks;
  Floats scale;
  STEP_WORDS
  uint count;
  float rate_decay;
  float eps;
  float weight_decay;
  float rate_factor;
} p;

void main() {
  const uint number = group_index();
  if (number >= p.count || p.step.error != 0 || step_non_finite != 0) {
    return;
  }
  Chunk chunk = p.chunks.v[clamp_index(number, p.count)];
  const A rate = step_learning_rate * p.rate_factor / (1 + float(step_update - 1) * p.rate_decay);
  const A scale = p.scale.v[0];
  for (uint i = gl_LocalInvocationID.x; i < chunk.count; i += gl_WorkGroupSize.x) {
    const A w = chunk.w.v[i];
    const A g = chunk.g.v[i] * scale + p.weight_decay * w;
    const A s = chunk.s.v[i] + g * g;
    const A next = w - rate * (g / (sqrt(s) + p.eps));
    chunk.s.v[i] = s;
    chunk.w.v[i] = next;
    if (isnan(next) || isinf(next)) {
      set_step_weights_non_finite(1);
    }
  }
}
