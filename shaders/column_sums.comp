//! variants T=f32,f16,bf16
// y[o] = factor * the sum of parts[part, o], in the order of the parts. Or it is added to the
// gradient y.
#include "common.glsl"
#include "step.glsl"
#include "gradient.glsl"

layout(constant_id = 1) const uint IS_GRADIENT = 0;

const uint UNROLL = 16;

layout(push_constant, scalar) uniform Push {
  Floats parts;  // [count, n]
  Elements y;    // [n]
  Step step;     // of a gradient
  uint n;
  uint count;
  uint per_group;
  float factor;
  uint is_first;
} p;

void main() {
  const bool adds = IS_GRADIENT != 0 && adds_to_gradient(p.step, p.is_first);
  FOR_ELEMENTS(o, p.n) {
    A sum = 0;
    for (uint part = 0; part < p.count; part += UNROLL) {
      A terms[UNROLL];  // independent loads
      [[unroll]] for (uint j = 0; j < UNROLL; ++j) {
        terms[j] = p.parts.v[min(part + j, p.count - 1) * p.n + o];
      }
      [[unroll]] for (uint j = 0; j < UNROLL; ++j) {
        sum += part + j < p.count ? terms[j] : 0;
      }
    }
    const A y = sum * p.factor;
    write(p.y, o, adds ? read(p.y, o) + y : y);
  }
}
