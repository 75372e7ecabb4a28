//! variants
#version 460
#extension GL_GOOGLE_include_directive : require
//   g = grad * scale + weight_decay * w
//   with momentum:  b = first_update ? g : momentum * b + g,  g = nesterov ? g + momentum * b : b
//   w = w - learning_rate * g
// One workgroup per chunk of a storage, all storages in one dispatch. Nothing happens after an
// error.
#include "common.glsl"
#include "step_sgd.glsl"

struct Chunk {
  Floats w;
  Floats g;
  Floats b;
  uint count;
  uint padding;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Chunks { Chunk v[]; };

layout(push_constant, scalar) uniform Push {
  Chunks chunks;
  Floats scale;
  STEP_WORDS
  uint count;
  float momentum;
  float weight_decay;
  uint nesterov;
  uint has_momentum;
  float rate_factor;
} p;

void main() {
  const uint number = group_index();
  if (number >= p.count || p.step.error != 0 || step_non_finite != 0) {
    return;
  }
  Chunk chunk = p.chunks.v[clamp_index(number, p.count)];
  const A rate = step_learning_rate * p.rate_factor;
  const A scale = p.scale.v[0];
  for (uint i = gl_LocalInvocationID.x; i < chunk.count; i += gl_WorkGroupSize.x) {
    const A w = chunk.w.v[i];
    A g = chunk.g.v[i] * scale + p.weight_decay * w;
    if (p.has_momentum != 0) {
      const A b = step_first_update != 0 ? g : p.momentum * chunk.b.v[i] + g;
      chunk.b.v[i] = b;
      g = p.nesterov != 0 ? g + p.momentum * b : b;
    }
    const A next = w - rate * g;
    chunk.w.v[i] = next;
    if (isnan(next) || isinf(next)) {
      set_step_weights_non_finite(1);
    }
  }
}
