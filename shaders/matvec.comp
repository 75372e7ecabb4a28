//! variants T=f32,f16,bf16 WEIGHTS=plain,codes
// C = A B^T for an A of at most 8 rows, as in decoding, with what few_rows.glsl adds. B is [N, K].
// It is read once, so the kernel takes as long as the memory needs. A workgroup computes PER lines:
// columns of C, which a gate takes from two parts in turn. Its invocations share K: each takes 8
// elements of a row at a time, 16 bytes of a 16-bit row.
#include "few_rows.glsl"
#if defined(WEIGHTS_codes)
layout(constant_id = 3) const uint FORMAT = 255;  // see codes.glsl
#include "codes.glsl"
#endif

layout(constant_id = 2) const uint PER = 4;

shared A partial[MOST_SUBGROUPS][PER * ROWS];

#if defined(WEIGHTS_codes)
Eight load_weights(Elements b, uint row, uint at) {
  A x[8];
  if ((ALIGNED & kRowsOfB) != 0) {
    decode_8(CodeTable(b), row, at, x);
    return eight_of(x);
  }
  [[unroll]] for (uint e = 0; e < 8; ++e) {
    const A element = decode(CodeTable(b), row, clamp_index(at + e, p.k));
    x[e] = at + e < p.k ? element : 0;
  }
  return eight_of(x);
}
#else
Eight load_weights(Elements b, uint row, uint at) { return load_8(b, row * p.k, at, p.k, kRowsOfB); }
#endif

void main() {
  uint group;
  const uint part = part_of(group);
  const uint lines = p.parts.n[part] * (1 + GATED);
  const uint n0 = group * PER;
  if (n0 >= lines) {
    return;
  }
  take_statistics();
  A sums[PER * ROWS];
  [[unroll]] for (uint i = 0; i < PER * ROWS; ++i) {
    sums[i] = 0;
  }
  for (uint at = 8 * gl_LocalInvocationID.x; at < p.k; at += 8 * gl_WorkGroupSize.x) {
    Eight x[ROWS];
    load_a(at, x);
    [[unroll]] for (uint i = 0; i < PER; ++i) {
      const uint line = min(n0 + i, lines - 1);
      const uint row = p.parts.first[part] + line / (1 + GATED);
      const Eight w = load_weights(p.b[GATED != 0 ? i % 2 : part], row, at);
      [[unroll]] for (uint m = 0; m < ROWS; ++m) {
        sums[i * ROWS + m] += dot(w.low, x[m].low) + dot(w.high, x[m].high);
      }
    }
  }
  [[unroll]] for (uint i = 0; i < PER * ROWS; ++i) {
    const A sum = subgroupAdd(sums[i]);
    if (gl_SubgroupInvocationID == 0) {
      partial[gl_SubgroupID][i] = sum;
    }
  }
  wait_for_workgroup();
  for (uint i = gl_LocalInvocationID.x; i < PER * ROWS; i += gl_WorkGroupSize.x) {
    const uint line = i / ROWS;
    if (n0 + line < lines && line % (1 + GATED) == 0) {
      A sum = 0;
      A other = 0;
      for (uint s = 0; s < gl_NumSubgroups; ++s) {
        sum += partial[s][i];
        if (GATED != 0) {
          other += partial[s][min(i + ROWS, PER * ROWS - 1)];
        }
      }
      put(part, i % ROWS, (n0 + line) / (1 + GATED), sum, other);
    }
  }
}
