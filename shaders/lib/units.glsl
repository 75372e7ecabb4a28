// What products on matrix units share: the constants of a tile, and its results on their way to C.
// Declare the variants T=f16,bf16, and include common.glsl and matmul.glsl before.
//
// glslang emits SPV_NV_cooperative_matrix; tools/cmake/cooperative_matrix.py translates it. The
// matrices of bf16 are declared as f16, because nothing but the matrix units sees a value.
layout(constant_id = 1) const uint TM = 64;
layout(constant_id = 2) const uint TN = 64;
// bits: A, B are aligned to 16 bytes, C to four elements; A, B are contiguous along K; C is f32, as
// those of parts and gradients are; C is a gradient
layout(constant_id = 3) const uint LAYOUT = 0;
#if !defined(THEN_store)
layout(constant_id = 4) const uint FOLLOW = 0;
#include "follow.glsl"
#endif

layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer Vectors { uvec4 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Pairs { uvec2 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer Sums { vec4 v[]; };

const bool C_IS_ALIGNED = (LAYOUT & 4) != 0;
const bool A_ALONG_K = (LAYOUT & 8) != 0;
const bool B_ALONG_K = (LAYOUT & 16) != 0;
const bool C_IS_F32 = (LAYOUT & 32) != 0;
const bool IS_GRADIENT = (LAYOUT & 64) != 0;

#if defined(T_f16)
#define NARROW float_to_half
#else
#define NARROW float_to_bhalf
#endif

#if !defined(THEN_store)
// Applies what follows to four results of a row from column n on.
void follow_4(uint at, uint n, inout vec4 x) {
  [[unroll]] for (uint c = 0; c < 4; ++c) {
    const uint i = at + min(c, p.n - 1 - n);
    x[c] = sum_of(x[c], read(Elements(p.other), i));
    if ((FOLLOW & kGelu) != 0) {
      if (n + c < p.n) {
        write(Elements(p.before), i, x[c]);
      }
      x[c] = activated(x[c]);
    }
  }
}
#endif

// Stores four results of row m from column n on, or adds them to a gradient.
void store_4(uint first, uint m, uint n, vec4 x, bool adds) {
  if (p.has_bias != 0) {
    [[unroll]] for (uint c = 0; c < 4; ++c) {
      x[c] += read(Elements(p.bias), min(n + c, p.n - 1));
    }
  }
  const uint at = first + m * p.n + n;
#if !defined(THEN_store)
  if (FOLLOW != 0) {
    follow_4(at, n, x);
  }
#endif
  if (C_IS_F32 && C_IS_ALIGNED) {
    Sums(p.c).v[at / 4] = adds ? Sums(p.c).v[at / 4] + x : x;
    return;
  }
  if (C_IS_ALIGNED) {
    Pairs(p.c).v[at / 4] = uvec2(NARROW(x.x) | NARROW(x.y) << 16, NARROW(x.z) | NARROW(x.w) << 16);
    return;
  }
  [[unroll]] for (uint c = 0; c < 4; ++c) {
    if (n + c < p.n) {
      if (C_IS_F32) {
        p.c.v[at + c] = adds ? p.c.v[at + c] + x[c] : x[c];
      } else {
        write(Elements(p.c), at + c, x[c]);
      }
    }
  }
}
