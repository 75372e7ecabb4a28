//! variants B=plain,codes
// Matrix product for GPUs. A workgroup computes a tile of TM x TN with tiles of A and B of depth TK
// in shared memory. Its invocations are rows of 16; each computes TM / rows x TN / 16 elements. The
// next tiles are loaded into registers before the current tiles are multiplied, which hides the
// latency of the loads. Loads and shared memory use vectors of four elements.
#include "common.glsl"
#if defined(B_codes)
#define CODES
#define FORMAT_ID 4
#endif
#include "matmul.glsl"
#if !defined(CODES)
A load_a(uint first, uint m, uint k) { return p.a.v[first + m * p.a_m + k * p.a_k]; }
A load_b(uint first, uint k, uint n) { return p.b.v[first + k * p.b_k + n * p.b_n]; }
#endif

layout(constant_id = 1) const uint TM = 64;
layout(constant_id = 2) const uint TN = 64;
// bits: rows of A, rows of B are aligned to 16 bytes, so that four elements are one load
layout(constant_id = 3) const uint ALIGNED = 0;

layout(constant_id = 5) const uint IS_GRADIENT = 0;  // C
layout(constant_id = 6) const uint FOLLOW = 0;
#include "follow.glsl"

layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer Vectors { vec4 v[]; };

const uint TK = 16;
const uint DEPTH = TK / 4;  // vectors
// A stride of an odd number of vectors: neighbouring rows are in different banks.
const uint STRIDE = DEPTH + 1;
const uint ROWS = gl_WorkGroupSize.x / 16;
const uint THREAD_M = TM / ROWS;
const uint THREAD_N = TN / 16;
const uint LOADS_A = TM * DEPTH / gl_WorkGroupSize.x;
const uint LOADS_B = TN * DEPTH / gl_WorkGroupSize.x;

shared vec4 tile_a[TM * STRIDE];
shared vec4 tile_b[TN * STRIDE];

// Declares the place of load `e` of an invocation in a tile of `size` rows: its row, and its
// element of K. Neighbouring invocations read along the axis that is contiguous in memory, and a
// load takes four elements of this axis.
#define PLACE_OF_LOAD(e, size, along_k)                                          \
  const uint at = gl_LocalInvocationID.x + (e) * gl_WorkGroupSize.x;             \
  const uint row = along_k ? at / DEPTH : at % ((size) / 4) * 4;                 \
  const uint k = along_k ? at % DEPTH * 4 : at / ((size) / 4);

// Four elements from row `row` and element `k` of K on, of `count` rows; 0 past the end.
#define LOAD_4(out_4, from, bit, first, r, at_k, count, along_k, stride, ELEMENT)     \
  {                                                                                   \
    out_4 = vec4(0);                                                                  \
    if ((ALIGNED & bit) != 0) {                                                       \
      if ((r) < (count) && (at_k) < p.k) {                                            \
        const uint in_row = along_k ? (r) * (stride) + (at_k) : (at_k) * (stride) + (r); \
        out_4 = Vectors(from).v[((first) + in_row) / 4];                              \
      }                                                                               \
    } else {                                                                          \
      [[unroll]] for (uint c = 0; c < 4; ++c) {                                       \
        const uint r_c = along_k ? (r) : (r) + c;                                     \
        const uint k_c = along_k ? (at_k) + c : (at_k);                               \
        out_4[c] = r_c < (count) && k_c < p.k ? ELEMENT(r_c, k_c) : 0;                \
      }                                                                               \
    }                                                                                 \
  }
#define STORE_4(tile, value, r, at_k, along_k)                            \
  if (along_k) {                                                          \
    tile[(r) * STRIDE + (at_k) / 4] = value;                              \
  } else {                                                                \
    [[unroll]] for (uint c = 0; c < 4; ++c) {                             \
      tile[((r) + c) * STRIDE + (at_k) / 4][(at_k) % 4] = value[c];       \
    }                                                                     \
  }
#define ELEMENT_A(r, at_k) load_a(o.a, r, at_k)
#define ELEMENT_B(r, at_k) load_b(o.b, at_k, r)

void main() {
  const uint x = gl_LocalInvocationID.x % 16;
  const uint y = gl_LocalInvocationID.x / 16;
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
  const bool a_along_k = p.a_k == 1;
  const bool b_along_k = p.b_k == 1;
  vec4 next_a[LOADS_A];
  vec4 next_b[LOADS_B];
  A acc[THREAD_M][THREAD_N];
  [[unroll]] for (uint i = 0; i < THREAD_M; ++i) {
    [[unroll]] for (uint j = 0; j < THREAD_N; ++j) {
      acc[i][j] = 0;
    }
  }
  for (uint k0 = first_k; k0 < end_k + TK; k0 += TK) {
    if (k0 < end_k) {
      [[unroll]] for (uint e = 0; e < LOADS_A; ++e) {
        PLACE_OF_LOAD(e, TM, a_along_k)
        LOAD_4(next_a[e], p.a, 1, o.a, m0 + row, k0 + k, p.m, a_along_k,
               (a_along_k ? p.a_m : p.a_k), ELEMENT_A)
      }
      [[unroll]] for (uint e = 0; e < LOADS_B; ++e) {
        PLACE_OF_LOAD(e, TN, b_along_k)
        LOAD_4(next_b[e], p.b, 2, o.b, n0 + row, k0 + k, p.n, b_along_k,
               (b_along_k ? p.b_n : p.b_k), ELEMENT_B)
      }
    }
    if (k0 > first_k) {
      [[unroll]] for (uint k = 0; k < DEPTH; ++k) {
        vec4 b[THREAD_N];
        [[unroll]] for (uint j = 0; j < THREAD_N; ++j) {
          b[j] = tile_b[(x + 16 * j) * STRIDE + k];
        }
        [[unroll]] for (uint i = 0; i < THREAD_M; ++i) {
          const vec4 a = tile_a[(y + ROWS * i) * STRIDE + k];
          [[unroll]] for (uint j = 0; j < THREAD_N; ++j) {
            acc[i][j] += dot(a, b[j]);
          }
        }
      }
      barrier();
    }
    if (k0 < end_k) {
      [[unroll]] for (uint e = 0; e < LOADS_A; ++e) {
        PLACE_OF_LOAD(e, TM, a_along_k)
        STORE_4(tile_a, next_a[e], row, k, a_along_k)
      }
      [[unroll]] for (uint e = 0; e < LOADS_B; ++e) {
        PLACE_OF_LOAD(e, TN, b_along_k)
        STORE_4(tile_b, next_b[e], row, k, b_along_k)
      }
      barrier();
    }
  }
  const bool adds = IS_GRADIENT != 0 && adds_to_gradient(p.step, p.is_first);
  [[unroll]] for (uint j = 0; j < THREAD_N; ++j) {
    const uint n = n0 + x + 16 * j;
    if (n < p.n) {
      const A bias = p.has_bias != 0 ? p.bias.v[n] : 0;
      [[unroll]] for (uint i = 0; i < THREAD_M; ++i) {
        const uint m = m0 + y + ROWS * i;
        if (m < p.m) {
          const uint at = o.c + m * p.n + n;
          A v = acc[i][j] + bias;
          if (FOLLOW != 0) {
            v = sum_of(v, p.other.v[at]);
          }
          if ((FOLLOW & kGelu) != 0) {
            p.before.v[at] = v;
            v = activated(v);
          }
          p.c.v[at] = adds ? p.c.v[at] + acc[i][j] : v;
        }
      }
    }
  }
}
