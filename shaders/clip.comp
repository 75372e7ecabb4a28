//! variants PART=squares,scale
// norm = gradient_scale * sqrt(sum of g^2), scale = gradient_scale * min(1, max_norm / norm).
//   squares  subgroup i adds the squares of chunks i, i + partials, ..., in this order
//   scale    one subgroup adds the partial sums, writes the scale and the per-step scalars, and
//            checks the loss
#include "common.glsl"
#include "step_clip_by_global_norm.glsl"

struct Chunk {
  Floats g;
  uint count;
  uint padding;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Chunks { Chunk v[]; };

layout(push_constant, scalar) uniform Push {
  Chunks chunks;
  Floats partial;
  Floats scale;
  Floats loss;
  STEP_WORDS
  uint count;  // chunks
  uint partials;
  float max_norm; // 0: no clipping
  uint has_loss;
} p;

#if defined(PART_squares)
void main() {
  const uint number = subgroup_index();
  if (number >= p.partials) {
    return;
  }
  A total = 0;
  for (uint c = number; c < p.count; c += p.partials) {
    Chunk chunk = p.chunks.v[clamp_index(c, p.count)];
    A sum = 0;
    for (uint i = gl_SubgroupInvocationID; i < chunk.count; i += 8 * gl_SubgroupSize) {
      [[unroll]] for (uint j = 0; j < 8; ++j) {
        const uint at = i + j * gl_SubgroupSize;
        const A g = at < chunk.count ? chunk.g.v[at] : 0;
        sum += g * g;
      }
    }
    total += subgroupAdd(sum);
  }
  if (subgroupElect()) {
    p.partial.v[number] = total;
  }
}
#else
void main() {
  if (group_index() > 0) {
    return;
  }
  A sum = 0;
  for (uint i = gl_SubgroupInvocationID; i < p.partials; i += gl_SubgroupSize) {
    sum += p.partial.v[i];
  }
  sum = subgroupAdd(sum);
  if (subgroupElect()) {
    const A norm = step_gradient_scale * sqrt(sum);
    const bool clips = p.max_norm > 0 && norm > p.max_norm;
    p.scale.v[0] = step_gradient_scale * (clips ? p.max_norm / norm : 1);
    set_step_grad_norm(norm);
    const A loss = p.has_loss != 0 ? p.loss.v[0] : 0;
    if (!is_finite(norm) || !is_finite(loss)) {
      set_step_non_finite(1);
    }
  }
}
#endif
