//! variants
#version 460
#extension GL_GOOGLE_include_directive : require
//   g = grad * scale + weight_decay * w,  v = alpha * v + (1 - alpha) * g^2
//   centered:       m = alpha * m + (1 - alpha) * g,  root = sqrt(max(v - m^2, 0)) + eps;  else
//       root = sqrt(v) + eps
//   with momentum:  b = momentum * b + g / root,  w = w - learning_rate * b;               else w =
//       w - learning_rate * g / root
// One workgroup per chunk of a storage, all storages in one dispatch. Nothing happens after an
// error.
#include "common.glsl"
#include "step_rms_prop.glsl"

struct Chunk {
  Floats w;
  Floats g;
  Floats v;
  Floats m;
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
  float alpha;
  float momentum;
  float eps;
  float weight_decay;
  float rate_factor;
  uint centered;
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
    const A g = chunk.g.v[i] * scale + p.weight_decay * w;
    const A v = p.alpha * chunk.v.v[i] + (1 - p.alpha) * g * g;
    chunk.v.v[i] = v;
    A variance = v;
    if (p.centered != 0) {
      const A m = p.alpha * chunk.m.v[i] + (1 - p.alpha) * g;
      chunk.m.v[i] = m;
      variance = v - m * m;
      variance = variance < 0 ? 0 : variance;
    }
    A step = g / (sqrt(variance) + p.eps);
    if (p.momentum != 0) {
      step += p.momentum * chunk.b.v[i];
      chunk.b.v[i] = step;
    }
    const A next = w - rate * step;
    chunk.w.v[i] = next;
    if (isnan(next) || isinf(next)) {
      set_step_weights_non_finite(1);
    }
  }
}
