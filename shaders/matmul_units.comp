//! variants THEN=store,follow T=f16,bf16
// Matrix product of 16-bit matrices on matrix units (VK_KHR_cooperative_matrix), with sums in f32.
// A workgroup computes a tile of TM x TN with tiles of A and B of depth TK in shared memory. Each
// subgroup computes a region of the tile, in matrices of UNIT_M x UNIT_N. The next tiles are
// loaded into registers before the current tiles are multiplied, which hides the latency of the
// loads. Only the variant `follow` has the code for Gelu and residual connections: on an H200, this
// code made the kernel six times as slow, even if it never ran.
#pragma use_vulkan_memory_model
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_NV_cooperative_matrix : require
#include "common.glsl"
#include "matmul.glsl"
#include "units.glsl"

layout(constant_id = 5) const uint GROUPS_M = 2;  // subgroups along M and N
layout(constant_id = 6) const uint GROUPS_N = 2;
layout(constant_id = 7) const uint UNIT_M = 16;
layout(constant_id = 8) const uint UNIT_N = 16;
layout(constant_id = 9) const uint UNIT_K = 16;

// Sizes in vectors of eight elements. A line of a tile is contiguous in memory, and in shared
// memory a vector longer, so that matrices of neighbouring lines are in different banks.
const uint TK = 32;
const uint LINE_A = (A_ALONG_K ? TK : TM) / 8;
const uint LINE_B = (B_ALONG_K ? TK : TN) / 8;
const uint STRIDE_A = LINE_A + 1;
const uint STRIDE_B = LINE_B + 1;
const uint LINES_A = A_ALONG_K ? TM : TK;
const uint LINES_B = B_ALONG_K ? TN : TK;
const uint LOADS_A = (LINES_A * LINE_A + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;
const uint LOADS_B = (LINES_B * LINE_B + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;
const uint TILE_A = LINES_A * STRIDE_A;
const uint TILE_B = LINES_B * STRIDE_B;

// The region of a subgroup, and its matrices.
const uint REGION_M = TM / GROUPS_M;
const uint REGION_N = TN / GROUPS_N;
const uint COUNT_M = REGION_M / UNIT_M;
const uint COUNT_N = REGION_N / UNIT_N;
// Results of a subgroup on their way to C: matrices beside each other, in vectors of four f32.
const uint LINE_C = REGION_N / 4;
const uint STRIDE_C = LINE_C + 1;
const uint RESULTS = UNIT_M * STRIDE_C;
const uint ALL_RESULTS = GROUPS_M * GROUPS_N * RESULTS;
const uint SHARED = TILE_A + TILE_B > ALL_RESULTS ? TILE_A + TILE_B : ALL_RESULTS;

shared uvec4 tiles[SHARED];

// A matrix in memory, from element `first` on: `lines` lines of `width` elements. `begin` is the
// first row (A) or column (B) of the tile: a line if lines run along k, else an element.
struct Operand {
  uint first;
  uint lines;
  uint width;
  uint begin;
};

// Vector e of this invocation is in line `line` of the tile, at element `element`. A line has LINE
// vectors.
#define PLACE(e, LINE)                                            \
  const uint at = gl_LocalInvocationID.x + e * gl_WorkGroupSize.x; \
  const uint line = at / LINE, element = at % LINE * 8;

// The number of an aligned vector at k = 0. Behind the last row or column, the last vector is
// loaded instead; its results are not stored.
uint first_vector(Operand o, bool along_k, uint line, uint element) {
  return along_k ? (o.first + min(o.begin + line, o.lines - 1) * o.width) / 8
                 : (o.first + min(o.begin + element, o.width - 8)) / 8;
}

// Eight elements of a line that is not aligned; 0 outside of the matrix.
uvec4 load_8(Elements from, Operand o, uint line, uint element) {
  uvec4 words = uvec4(0);
  const uint start = o.first + line * o.width + element;
  [[unroll]] for (uint c = 0; c < 8; ++c) {
    if (line < o.lines && element + c < o.width) {
      words[c / 2] |= uint(from.v[start + c]) << c % 2 * 16;
    }
  }
  return words;
}

// The loads of an invocation for the tile that begins at k0. AMD's open driver waits at once for a
// load under a condition. So aligned vectors are always loaded, and STORE_TILE replaces those
// behind the last k by 0.
#define LOAD_TILE(next, from, o, vectors, k0, bit, ALONG_K, LOADS, LINE)                 \
  [[unroll]] for (uint e = 0; e < LOADS; ++e) {                                          \
    PLACE(e, LINE)                                                                       \
    const uint k = (k0) + (ALONG_K ? element : line);                                    \
    if ((LAYOUT & bit) != 0) {                                                           \
      const uint behind = ALONG_K ? k / 8 : k * (o.width / 8);                           \
      next[e] = Vectors(from).v[vectors[e] + (k < p.k ? behind : 0)];                    \
    } else {                                                                             \
      next[e] = ALONG_K ? load_8(Elements(from), o, o.begin + line, k)                   \
                        : load_8(Elements(from), o, k, o.begin + element);               \
    }                                                                                    \
  }
#define STORE_TILE(next, start, k0, bit, ALONG_K, LOADS, LINES, LINE)                    \
  [[unroll]] for (uint e = 0; e < LOADS; ++e) {                                          \
    PLACE(e, LINE)                                                                       \
    const bool has_k = (LAYOUT & bit) == 0 || (k0) + (ALONG_K ? element : line) < p.k;   \
    if (LINES * LINE % gl_WorkGroupSize.x == 0 || at < LINES * LINE) {                   \
      tiles[(start) + line * (LINE + 1) + at % LINE] = has_k ? next[e] : uvec4(0);       \
    }                                                                                    \
  }

void main() {
  const uint per_matrix = p.groups_x * p.groups_y;
  const uint group = group_index();
  const uint z = group / per_matrix;
  if (z >= p.batches) {
    return;
  }
  const uint own_tile = group - z * per_matrix;
  const uint m0 = (own_tile / p.groups_x) * TM;
  const uint n0 = (own_tile % p.groups_x) * TN;
  const BatchOffsets o = batch_offsets(z);
  const uint first_k = o.part * p.part;
  const uint end_k = min(first_k + p.part, p.k);
  const Operand from_a = Operand(o.a, A_ALONG_K ? p.m : p.k, A_ALONG_K ? p.k : p.m, m0);
  const Operand from_b = Operand(o.b, B_ALONG_K ? p.n : p.k, B_ALONG_K ? p.k : p.n, n0);
  const uint region_m = gl_SubgroupID % GROUPS_M * REGION_M;
  const uint region_n = gl_SubgroupID / GROUPS_M * REGION_N;
  uvec4 next_a[LOADS_A];
  uvec4 next_b[LOADS_B];
  uint vectors_a[LOADS_A];
  uint vectors_b[LOADS_B];
  [[unroll]] for (uint e = 0; e < LOADS_A; ++e) {
    PLACE(e, LINE_A)
    vectors_a[e] = first_vector(from_a, A_ALONG_K, line, element);
  }
  [[unroll]] for (uint e = 0; e < LOADS_B; ++e) {
    PLACE(e, LINE_B)
    vectors_b[e] = first_vector(from_b, B_ALONG_K, line, element);
  }
  fcoopmatNV<32, gl_ScopeSubgroup, UNIT_M, UNIT_N> sums[COUNT_M][COUNT_N];
  [[unroll]] for (uint i = 0; i < COUNT_M; ++i) {
    [[unroll]] for (uint j = 0; j < COUNT_N; ++j) {
      sums[i][j] = fcoopmatNV<32, gl_ScopeSubgroup, UNIT_M, UNIT_N>(0.0);
    }
  }
  LOAD_TILE(next_a, p.a, from_a, vectors_a, first_k, 1, A_ALONG_K, LOADS_A, LINE_A)
  LOAD_TILE(next_b, p.b, from_b, vectors_b, first_k, 2, B_ALONG_K, LOADS_B, LINE_B)
  for (uint k0 = first_k; k0 < end_k; k0 += TK) {
    barrier();
    STORE_TILE(next_a, 0, k0, 1, A_ALONG_K, LOADS_A, LINES_A, LINE_A)
    STORE_TILE(next_b, TILE_A, k0, 2, B_ALONG_K, LOADS_B, LINES_B, LINE_B)
    barrier();
    LOAD_TILE(next_a, p.a, from_a, vectors_a, k0 + TK, 1, A_ALONG_K, LOADS_A, LINE_A)
    LOAD_TILE(next_b, p.b, from_b, vectors_b, k0 + TK, 2, B_ALONG_K, LOADS_B, LINE_B)
    [[unroll]] for (uint k = 0; k < TK; k += UNIT_K) {
      fcoopmatNV<16, gl_ScopeSubgroup, UNIT_M, UNIT_K> a[COUNT_M];
      [[unroll]] for (uint i = 0; i < COUNT_M; ++i) {
        const uint m = region_m + i * UNIT_M;
        if (A_ALONG_K) {
          coopMatLoadNV(a[i], tiles, m * STRIDE_A + k / 8, STRIDE_A, false);
        } else {
          coopMatLoadNV(a[i], tiles, k * STRIDE_A + m / 8, STRIDE_A, true);
        }
      }
      [[unroll]] for (uint j = 0; j < COUNT_N; ++j) {
        const uint n = region_n + j * UNIT_N;
        fcoopmatNV<16, gl_ScopeSubgroup, UNIT_K, UNIT_N> b;
        if (B_ALONG_K) {
          coopMatLoadNV(b, tiles, TILE_A + n * STRIDE_B + k / 8, STRIDE_B, true);
        } else {
          coopMatLoadNV(b, tiles, TILE_A + k * STRIDE_B + n / 8, STRIDE_B, false);
        }
        [[unroll]] for (uint i = 0; i < COUNT_M; ++i) {
          sums[i][j] = coopMatMulAddNV(a[i], b, sums[i][j]);
        }
      }
    }
  }
  barrier();
  const bool adds = IS_GRADIENT && adds_to_gradient(p.step, p.is_first);
  // Only the driver knows which invocation holds an element of a matrix.
  const uint own = gl_SubgroupID * RESULTS;
#define STORE_MATRICES(i)                                                       \
  [[unroll]] for (uint j = 0; j < COUNT_N; ++j) {                               \
    coopMatStoreNV(sums[i][j], tiles, own + j * UNIT_N / 4, STRIDE_C, false);   \
  }
#if defined(THEN_store)
  [[unroll]] for (uint i = 0; i < COUNT_M; ++i) {
    STORE_MATRICES(i)
#else
  // The code for Gelu is too long to be repeated. But matrices with a variable number would not be
  // in registers, so each has its own condition.
  [[dont_unroll]] for (uint i = 0; i < COUNT_M; ++i) {
    [[unroll]] for (uint own_i = 0; own_i < COUNT_M; ++own_i) {
      if (own_i == i) {
        STORE_MATRICES(own_i)
      }
    }
#endif
    subgroupBarrier();
    for (uint e = gl_SubgroupInvocationID; e < UNIT_M * LINE_C; e += gl_SubgroupSize) {
      const uint row = e / LINE_C, quad = e % LINE_C;
      const uint m = m0 + region_m + i * UNIT_M + row;
      const uint n = n0 + region_n + quad * 4;
      if (m < p.m && n < p.n) {
        store_4(o.c, m, n, uintBitsToFloat(tiles[own + row * STRIDE_C + quad]), adds);
      }
    }
    subgroupBarrier();
  }
}
