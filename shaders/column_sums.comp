//! variants T=f32,f16,bf16
// y[o] = factor * the sum of parts[part, o], in the order of the parts.
#include "common.glsl"

const uint UNROLL = 16;

layout(push_constant, scalar) uniform Push {
  Floats parts;  // [count, n]
  Elements y;    // [n]
  uint n;
  uint count;
  uint per_group;
  float factor;
} p;

void main() {
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
    write(p.y, o, sum * p.factor);
  }
}
