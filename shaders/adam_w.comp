//! variants
#version 460
#extension GL_GOOGLE_include_directive : require
//   g = grad * scale,  w = w * (1 - learning_rate * weight_decay)
//   m = beta1 * m + (1 - beta1) * g,  v = beta2 * v + (1 - beta2) * g^2
//   w = w - learning_rate * (m / bias_correction1) / (sqrt(v / bias_correction2) + eps)
// One workgroup per chunk of a storage, all storages in one dispatch. Nothing happens after an
// error.
#include "common.glsl"
#include "step_adam_w.glsl"

struct Chunk {
  Floats w;
  Floats g;
  Floats m;
  Floats v;
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
  const A rate = step_learning_rate * p.rate_factor;
  const A keep = 1 - rate * p.weight_decay;
  const A correction1 = step_bias_correction1;
  const A correction2 = step_bias_correction2;
  const A scale = p.scale.v[0];
  for (uint i = gl_LocalInvocationID.x; i < chunk.count; i += gl_WorkGroupSize.x) {
    const A g = chunk.g.v[i] * scale;
    const A m = p.beta1 * chunk.m.v[i] + (1 - p.beta1) * g;
    const A v = p.beta2 * chunk.v.v[i] + (1 - p.beta2) * g * g;
    chunk.m.v[i] = m;
    chunk.v.v[i] = v;
    const A w = chunk.w.v[i] * keep - rate * (m / correction1) / (sqrt(v / correction2) + p.eps);
    chunk.w.v[i] = w;
    if (isnan(w) || isinf(w)) {
      set_step_weights_non_finite(1);
    }
  }
}
