//! variants T=f32,f16,bf16 WEIGHTS=plain,codes
// C = A B for an A of at most 8 rows, as in decoding, with what few_rows.glsl adds. B is [K, N]. It
// is read once. A workgroup computes 8 ACROSS columns of C. Its invocations are a grid: ACROSS of
// them multiply a row of B, 8 neighbours each, and each row of the grid has other rows of B.
#include "few_rows.glsl"
#if defined(WEIGHTS_codes)
layout(constant_id = 3) const uint FORMAT = 255;  // see codes.glsl
#include "codes.glsl"
#endif

layout(constant_id = 2) const uint ACROSS = 4;  // a power of two, at most 4

const uint COLUMNS = 8 * ACROSS;
const uint AT_ONCE = ROWS <= 2 ? 4 : 2;  // loads of an invocation

shared A partial[MOST_SUBGROUPS][COLUMNS];

// Columns n to n + 7 of a part.
Eight load_weights(uint part, uint row, uint n) {
  const uint first = p.parts.first[part];
#if defined(WEIGHTS_codes)
  CodeTable table = CodeTable(p.b[part]);
  A x[8];
  if ((ALIGNED & kRowsOfB) != 0) {
    decode_8(table, row, first + n, x);
    return eight_of(x);
  }
  [[unroll]] for (uint e = 0; e < 8; ++e) {
    x[e] = decode(table, row, first + clamp_index(n + e, p.parts.n[part]));
  }
  return eight_of(x);
#else
  return load_8(p.b[part], row * p.parts.width[part] + first, n, p.parts.n[part], kRowsOfB);
#endif
}

void main() {
  uint group;
  const uint part = part_of(group);
  const uint columns = p.parts.n[part];
  const uint n0 = group * COLUMNS;
  if (n0 >= columns) {
    return;
  }
  take_statistics();
  const uint number = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
  const uint down = gl_WorkGroupSize.x / ACROSS;
  const uint column = n0 + 8 * (number % ACROSS);
  vec4 low[ROWS];
  vec4 high[ROWS];
  [[unroll]] for (uint m = 0; m < ROWS; ++m) {
    low[m] = high[m] = vec4(0);
  }
  for (uint i = number / ACROSS; i < p.k && column < columns; i += down * AT_ONCE) {
    Eight w[AT_ONCE];
    [[unroll]] for (uint e = 0; e < AT_ONCE; ++e) {
      w[e] = load_weights(part, min(i + e * down, p.k - 1), column);
    }
    [[unroll]] for (uint e = 0; e < AT_ONCE; ++e) {
      A x[ROWS];
      load_a(min(i + e * down, p.k - 1), x);
      [[unroll]] for (uint m = 0; m < ROWS; ++m) {
        if (i + e * down < p.k) {
          low[m] += x[m] * w[e].low;
          high[m] += x[m] * w[e].high;
        }
      }
    }
  }
  [[unroll]] for (uint m = 0; m < ROWS; ++m) {
    for (uint other = ACROSS; other < gl_SubgroupSize; other *= 2) {
      low[m] += subgroupShuffleXor(low[m], other);
      high[m] += subgroupShuffleXor(high[m], other);
    }
    if (gl_SubgroupInvocationID < ACROSS) {
      [[unroll]] for (uint c = 0; c < 4; ++c) {
        partial[gl_SubgroupID][8 * gl_SubgroupInvocationID + c] = low[m][c];
        partial[gl_SubgroupID][8 * gl_SubgroupInvocationID + 4 + c] = high[m][c];
      }
    }
    wait_for_workgroup();
    for (uint c = gl_LocalInvocationID.x; c < COLUMNS; c += gl_WorkGroupSize.x) {
      A sum = 0;
      for (uint s = 0; s < gl_NumSubgroups; ++s) {
        sum += partial[s][c];
      }
      if (n0 + c < columns) {
        put(part, m, n0 + c, sum, 0);
      }
    }
    wait_for_workgroup();
  }
}
