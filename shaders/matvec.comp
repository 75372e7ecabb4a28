//! variants T=f32,f16,bf16 WEIGHTS=plain,codes
// C = A B^T + bias for an A of at most 8 rows, as in decoding. B is [N, K]. It is read once,
// so the kernel takes as long as the memory needs. A workgroup computes PER columns of C. Its
// invocations share K: each takes 8 elements of a row at a time, 16 bytes of a 16-bit row. K is a
// multiple of 8, and rows are aligned to 16 bytes.
#include "common.glsl"
#if defined(WEIGHTS_codes)
layout(constant_id = 3) const uint FORMAT = 255;  // see codes.glsl
#include "codes.glsl"
#endif

layout(constant_id = 1) const uint M = 1;
layout(constant_id = 2) const uint PER = 4;

layout(push_constant, scalar) uniform Push {
  Elements a;
  Elements b;  // WEIGHTS_codes: the address of a CodeTable
  Elements c;
  Elements bias;  // [N], if has_bias
  uint n;
  uint k;
  uint has_bias;
} p;

const uint MOST_SUBGROUPS = 32;  // of 128 invocations

shared A partial[MOST_SUBGROUPS][PER * M];

struct Eight {
  vec4 low;
  vec4 high;
};

#if defined(T_f32)
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer Vectors { vec4 v[]; };
Eight load_8(Elements from, uint at) {
  return Eight(Vectors(from).v[at / 4], Vectors(from).v[at / 4 + 1]);
}
#else
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer Vectors { uvec4 v[]; };
#if defined(T_f16)
#define WIDEN half_to_float
#else
#define WIDEN bhalf_to_float
#endif
Eight load_8(Elements from, uint at) {
  const uvec4 pairs = Vectors(from).v[at / 8];
  const uvec4 even = pairs & 65535u;
  const uvec4 odd = pairs >> 16;
  return Eight(vec4(WIDEN(even.x), WIDEN(odd.x), WIDEN(even.y), WIDEN(odd.y)),
               vec4(WIDEN(even.z), WIDEN(odd.z), WIDEN(even.w), WIDEN(odd.w)));
}
#endif

#if defined(WEIGHTS_codes)
Eight load_weights(uint row, uint at) {
  A x[8];
  decode_8(CodeTable(p.b), row, at, x);
  return Eight(vec4(x[0], x[1], x[2], x[3]), vec4(x[4], x[5], x[6], x[7]));
}
#else
Eight load_weights(uint row, uint at) { return load_8(p.b, row * p.k + at); }
#endif

void main() {
  const uint n0 = group_index() * PER;
  if (n0 >= p.n) {
    return;
  }
  A sums[PER * M];
  [[unroll]] for (uint i = 0; i < PER * M; ++i) {
    sums[i] = 0;
  }
  for (uint at = 8 * gl_LocalInvocationID.x; at < p.k; at += 8 * gl_WorkGroupSize.x) {
    Eight x[M];
    [[unroll]] for (uint m = 0; m < M; ++m) {
      x[m] = load_8(p.a, m * p.k + at);
    }
    [[unroll]] for (uint i = 0; i < PER; ++i) {
      const Eight w = load_weights(min(n0 + i, p.n - 1), at);
      [[unroll]] for (uint m = 0; m < M; ++m) {
        sums[i * M + m] += dot(w.low, x[m].low) + dot(w.high, x[m].high);
      }
    }
  }
  [[unroll]] for (uint i = 0; i < PER * M; ++i) {
    const A sum = subgroupAdd(sums[i]);
    if (gl_SubgroupInvocationID == 0) {
      partial[gl_SubgroupID][i] = sum;
    }
  }
  if (gl_NumSubgroups > 1) {
    barrier();
  } else {
    subgroupBarrier();  // software devices need no coroutine for it
  }
  for (uint i = gl_LocalInvocationID.x; i < PER * M; i += gl_WorkGroupSize.x) {
    const uint n = n0 + i / M;
    if (n < p.n) {
      A sum = 0;
      for (uint s = 0; s < gl_NumSubgroups; ++s) {
        sum += partial[s][i];
      }
      const A bias = p.has_bias != 0 ? read(p.bias, n) : 0;
      write(p.c, i % M * p.n + n, sum + bias);
    }
  }
}
