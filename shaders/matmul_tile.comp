//! variants B=plain,codes
// Matrix product for GPUs. A workgroup of 256 invocations computes a tile of 64 x 64, each
// invocation 4 x 4 of it, with tiles of A and B of depth 16 in shared memory. The next tiles are
// loaded into registers before the current tiles are multiplied, which hides the latency of the
// loads.
#include "common.glsl"
#if defined(B_codes)
#define CODES
#endif
#include "matmul.glsl"
#if !defined(CODES)
A load_a(uint first, uint m, uint k) { return p.a.v[first + m * p.a_m + k * p.a_k]; }
A load_b(uint first, uint k, uint n) { return p.b.v[first + k * p.b_k + n * p.b_n]; }
#endif

const uint TM = 64;
const uint TN = 64;
const uint TK = 16;
const uint THREADS = 256;
const uint LOADS = TM * TK / THREADS;

shared A tile_a[TK][TM + 1];
shared A tile_b[TK][TN + 1];

void main() {
  const uint t = gl_LocalInvocationID.x;
  const uint per_matrix = p.groups_x * p.groups_y;
  const uint group = group_index();
  const uint z = group / per_matrix;
  if (z >= p.batches) {
    return;
  }
  const uint tile = group - z * per_matrix;
  const uint m0 = (tile / p.groups_x) * TM;
  const uint n0 = (tile % p.groups_x) * TN;
  const BatchOffsets o = batch_offsets(z);
  // Neighbouring invocations read along the axis that is contiguous in memory.
  const bool a_along_k = p.a_k == 1;
  const bool b_along_k = p.b_k == 1;
  A next_a[LOADS];
  A next_b[LOADS];
  A acc[4][4];
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      acc[i][j] = 0;
    }
  }
  for (uint k0 = 0; k0 < p.k + TK; k0 += TK) {
    if (k0 < p.k) {
      [[unroll]] for (uint e = 0; e < LOADS; ++e) {
        const uint at = t + e * THREADS;
        const uint ak = a_along_k ? at % TK : at / TM;
        const uint am = a_along_k ? at / TK : at % TM;
        const uint bk = b_along_k ? at % TK : at / TN;
        const uint bn = b_along_k ? at / TK : at % TN;
        const bool a_in = k0 + ak < p.k && m0 + am < p.m;
        const bool b_in = k0 + bk < p.k && n0 + bn < p.n;
        next_a[e] = a_in ? load_a(o.a, m0 + am, k0 + ak) : 0;
        next_b[e] = b_in ? load_b(o.b, k0 + bk, n0 + bn) : 0;
      }
    }
    if (k0 > 0) {
      [[unroll]] for (uint k = 0; k < TK; ++k) {
        A a[4];
        A b[4];
        [[unroll]] for (uint i = 0; i < 4; ++i) {
          a[i] = tile_a[k][t / 16 + 16 * i];
          b[i] = tile_b[k][t % 16 + 16 * i];
        }
        [[unroll]] for (uint i = 0; i < 4; ++i) {
          [[unroll]] for (uint j = 0; j < 4; ++j) {
            acc[i][j] += a[i] * b[j];
          }
        }
      }
      barrier();
    }
    if (k0 < p.k) {
      [[unroll]] for (uint e = 0; e < LOADS; ++e) {
        const uint at = t + e * THREADS;
        tile_a[a_along_k ? at % TK : at / TM][a_along_k ? at / TK : at % TM] = next_a[e];
        tile_b[b_along_k ? at % TK : at / TN][b_along_k ? at / TK : at % TN] = next_b[e];
      }
      barrier();
    }
  }
  [[unroll]] for (uint j = 0; j < 4; ++j) {
    const uint n = n0 + t % 16 + 16 * j;
    if (n < p.n) {
      const A bias = p.has_bias != 0 ? p.bias.v[n] : 0;
      [[unroll]] for (uint i = 0; i < 4; ++i) {
        const uint m = m0 + t / 16 + 16 * i;
        if (m < p.m) {
          p.c.v[o.c + m * p.n + n] = acc[i][j] + bias;
        }
      }
    }
  }
}
