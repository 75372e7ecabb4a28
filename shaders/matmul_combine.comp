//! variants T=f32,f16,bf16
// Adds the results that matmul_tile.comp or matmul_units.comp has for parts of k, in their order,
// and the bias, with what follows. Or it adds them to a gradient.
#include "common.glsl"
#include "step.glsl"
#include "gradient.glsl"

layout(push_constant, scalar) uniform Push {
  Floats parts;
  Elements c;
  Elements bias;  // [columns], if has_bias
  Step step;      // of a gradient
  Elements other;   // see follow.glsl
  Elements before;  // values before Gelu
  uint elements;  // of C
  uint columns;
  uint has_bias;
  uint per_group;
  uint is_first;
} p;

layout(constant_id = 1) const uint PARTS = 2;
layout(constant_id = 2) const uint IS_GRADIENT = 0;
layout(constant_id = 3) const uint FOLLOW = 0;
#include "follow.glsl"

void main() {
  const bool adds = IS_GRADIENT != 0 && adds_to_gradient(p.step, p.is_first);
  FOR_ELEMENTS(i, p.elements) {
    A sum = p.parts.v[i];
    [[unroll]] for (uint part = 1; part < PARTS; ++part) {
      sum += p.parts.v[part * p.elements + i];
    }
    const A bias = p.has_bias != 0 ? read(p.bias, i % p.columns) : 0;
    A v = sum + bias;
    if (FOLLOW != 0) {
      v = sum_of(v, read(p.other, i));
    }
    if ((FOLLOW & kGelu) != 0) {
      write(p.before, i, v);
      v = activated(v);
    }
    write(p.c, i, adds ? read(p.c, i) + sum : v);
  }
}
