//! variants T=f16,bf16
// Matrix product of 16-bit matrices on matrix units (VK_KHR_cooperative_matrix), with sums in f32.
// A workgroup computes a tile of TM x TN with tiles of A and B of depth TK in shared memory. Each
// subgroup computes a region of the tile, in matrices of UNIT_M x UNIT_N. The next tiles are loaded
// into registers before the current tiles are multiplied, which hides the latency of the loads.
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

// Eight elements of the line place.x, from element place.y on; 0 outside of the matrix. `size` is
// the number of lines and their length.
uvec4 load_8(Elements from, bool is_aligned, uint first, uvec2 place, uvec2 size) {
  uvec4 words = uvec4(0);
  const uint start = first + place.x * size.y + place.y;
  if (is_aligned) {
    if (all(lessThan(place, size))) {
      words = Vectors(from).v[start / 8];
    }
  } else {
    [[unroll]] for (uint c = 0; c < 8; ++c) {
      if (place.x < size.x && place.y + c < size.y) {
        words[c / 2] |= uint(from.v[start + c]) << c % 2 * 16;
      }
    }
  }
  return words;
}

// The loads of an invocation for a tile whose first element is at `origin`.
#define LOAD_TILE(next, from, bit, first, origin, size, LOADS, LINE)                              \
  [[unroll]] for (uint e = 0; e < LOADS; ++e) {                                                   \
    const uint at = gl_LocalInvocationID.x + e * gl_WorkGroupSize.x;                              \
    const uvec2 in_tile = uvec2(at / LINE, at % LINE * 8);                                        \
    next[e] = load_8(Elements(from), (LAYOUT & bit) != 0, first, origin + in_tile, size);       \
  }
#define STORE_TILE(next, start, LOADS, LINES, LINE)                                               \
  [[unroll]] for (uint e = 0; e < LOADS; ++e) {                                                   \
    const uint at = gl_LocalInvocationID.x + e * gl_WorkGroupSize.x;                              \
    if (LINES * LINE % gl_WorkGroupSize.x == 0 || at < LINES * LINE) {                            \
      tiles[(start) + at / LINE * (LINE + 1) + at % LINE] = next[e];                              \
    }                                                                                             \
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
  const uvec2 size_a = A_ALONG_K ? uvec2(p.m, p.k) : uvec2(p.k, p.m);  // lines, their length
  const uvec2 size_b = B_ALONG_K ? uvec2(p.n, p.k) : uvec2(p.k, p.n);
  const uint region_m = gl_SubgroupID % GROUPS_M * REGION_M;
  const uint region_n = gl_SubgroupID / GROUPS_M * REGION_N;
  uvec4 next_a[LOADS_A];
  uvec4 next_b[LOADS_B];
  fcoopmatNV<32, gl_ScopeSubgroup, UNIT_M, UNIT_N> sums[COUNT_M][COUNT_N];
  [[unroll]] for (uint i = 0; i < COUNT_M; ++i) {
    [[unroll]] for (uint j = 0; j < COUNT_N; ++j) {
      sums[i][j] = fcoopmatNV<32, gl_ScopeSubgroup, UNIT_M, UNIT_N>(0.0);
    }
  }
  for (uint k0 = first_k; k0 < end_k + TK; k0 += TK) {
    if (k0 < end_k) {
      const uvec2 at_a = A_ALONG_K ? uvec2(m0, k0) : uvec2(k0, m0);
      const uvec2 at_b = B_ALONG_K ? uvec2(n0, k0) : uvec2(k0, n0);
      LOAD_TILE(next_a, p.a, 1, o.a, at_a, size_a, LOADS_A, LINE_A)
      LOAD_TILE(next_b, p.b, 2, o.b, at_b, size_b, LOADS_B, LINE_B)
    }
    if (k0 > first_k) {
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
      barrier();
    }
    if (k0 < end_k) {
      STORE_TILE(next_a, 0, LOADS_A, LINES_A, LINE_A)
      STORE_TILE(next_b, TILE_A, LOADS_B, LINES_B, LINE_B)
      barrier();
    }
  }
  const bool adds = IS_GRADIENT && adds_to_gradient(p.step, p.is_first);
  // Only the driver knows which invocation holds an element of a matrix.
  const uint own = gl_SubgroupID * RESULTS;
  [[unroll]] for (uint i = 0; i < COUNT_M; ++i) {
    [[unroll]] for (uint j = 0; j < COUNT_N; ++j) {
      coopMatStoreNV(sums[i][j], tiles, own + j * UNIT_N / 4, STRIDE_C, false);
    }
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
