//! variants LAYOUT=nt,nn,tn,any,codes
// Matrix product for devices whose lanes are vector elements of a CPU. A workgroup is one subgroup
// without barriers. It keeps a tile of TM rows x S * TC columns in registers, and passes A between
// lanes by shuffles with constant indices. Rows and columns past the edge are clamped while loading
// and skipped while storing. Pairs of neighbours are loaded as 64 bits, so K must be even for nt, K
// and N for nn, M and N for tn. `any` and `codes` have no such requirement.
#include "common.glsl"
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

#if defined(LAYOUT_codes)
#define CODES
#define FORMAT_ID 2
#endif
#include "matmul.glsl"

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Pairs { uint64_t v[]; };

layout(constant_id = 1) const uint TM = 16;  // rows per lane
const uint TC = 4;                           // columns per lane
const uint S = gl_WorkGroupSize.x;           // lanes

vec2 as_pair(uint64_t x) { return uintBitsToFloat(unpackUint2x32(x)); }

#if defined(LAYOUT_nt) || defined(LAYOUT_any) || defined(LAYOUT_codes)
// The columns of a lane are S apart.
uint column(uint first, uint lane, uint j) { return first + lane + S * j; }
#else
// A lane owns pairs of columns; the pairs are 2 * S apart.
uint column(uint first, uint lane, uint j) { return first + 2 * lane + 2 * S * (j / 2) + (j & 1); }
#endif

#define lane gl_SubgroupInvocationID

// The tile of the workgroup: its first row and column, and its matrices.
uint m0;
uint n0;
BatchOffsets o;
A acc[TM * TC];

#define FOR_ROWS(i) [[unroll]] for (uint i = 0; i < TM; ++i)
#define FOR_COLUMNS(j) [[unroll]] for (uint j = 0; j < TC; ++j)
#define FOR_PAIRS(j) [[unroll]] for (uint j = 0; j < TC / 2; ++j)
// Adds x * b to row i: b has one column per element, or a pair of them.
#define ADD_COLUMNS(i, x, b) FOR_COLUMNS(j) { acc[(i) * TC + j] += (x) * b[j]; }
#define ADD_PAIRS(i, x, b)                       \
  FOR_PAIRS(j) {                                 \
    acc[(i) * TC + 2 * j] += (x) * b[j].x;       \
    acc[(i) * TC + 2 * j + 1] += (x) * b[j].y;   \
  }
// Declares the pairs of row k of B [K, N] that belong to the columns of this lane.
#define LOAD_PAIRS_OF_ROW(pairs, k)                                       \
  vec2 pairs[TC / 2];                                                     \
  FOR_PAIRS(j) { pairs[j] = as_pair(Pairs(p.b).v[b_column[j] + (k) * n2]); }

#if defined(LAYOUT_nt)
void multiply() {
  const uint k2 = p.k / 2;
  uint a_row[TM];
  uint b_row[TC];
  FOR_ROWS(i) { a_row[i] = o.a / 2 + min(m0 + i, p.m - 1) * k2; }
  FOR_COLUMNS(j) { b_row[j] = o.b / 2 + min(column(n0, lane, j), p.n - 1) * k2; }
  Pairs a = Pairs(p.a);
  Pairs b = Pairs(p.b);
  const uint whole = k2 / S * S;
  for (uint k = 0; k < whole; k += S) {
    vec2 ar[TM];
    FOR_ROWS(i) { ar[i] = as_pair(a.v[a_row[i] + k + lane]); }
    [[unroll]] for (uint kk = 0; kk < S; ++kk) {
      vec2 br[TC];
      FOR_COLUMNS(j) { br[j] = as_pair(b.v[b_row[j] + k + kk]); }
      FOR_ROWS(i) {
        const A ax = subgroupShuffle(ar[i].x, kk);
        const A ay = subgroupShuffle(ar[i].y, kk);
        FOR_COLUMNS(j) {
          acc[i * TC + j] += ax * br[j].x;
          acc[i * TC + j] += ay * br[j].y;
        }
      }
    }
  }
  for (uint k = whole; k < k2; ++k) {
    vec2 br[TC];
    FOR_COLUMNS(j) { br[j] = as_pair(b.v[b_row[j] + k]); }
    FOR_ROWS(i) {
      const vec2 x = as_pair(a.v[a_row[i] + clamp_index(k, k2)]);
      FOR_COLUMNS(j) {
        acc[i * TC + j] += x.x * br[j].x;
        acc[i * TC + j] += x.y * br[j].y;
      }
    }
  }
}
#elif defined(LAYOUT_nn)
void multiply() {
  const uint n2 = p.n / 2;
  const uint k2 = p.k / 2;
  uint a_row[TM];
  uint b_column[TC / 2];
  FOR_ROWS(i) { a_row[i] = o.a / 2 + min(m0 + i, p.m - 1) * k2; }
  FOR_PAIRS(j) { b_column[j] = o.b / 2 + min(column(n0, lane, 2 * j) / 2, n2 - 1); }
  Pairs a = Pairs(p.a);
  const uint whole = k2 / S * S;
  for (uint k = 0; k < whole; k += S) {
    vec2 ar[TM];
    FOR_ROWS(i) { ar[i] = as_pair(a.v[a_row[i] + k + lane]); }
    [[unroll]] for (uint kk = 0; kk < 2 * S; ++kk) {
      LOAD_PAIRS_OF_ROW(br, 2 * k + kk)
      FOR_ROWS(i) {
        const A x = subgroupShuffle((kk & 1) == 0 ? ar[i].x : ar[i].y, kk / 2);
        ADD_PAIRS(i, x, br)
      }
    }
  }
  for (uint k = 2 * whole; k < p.k; ++k) {
    LOAD_PAIRS_OF_ROW(br, k)
    FOR_ROWS(i) {
      const A x = p.a.v[2 * a_row[i] + clamp_index(k, p.k)];
      ADD_PAIRS(i, x, br)
    }
  }
}
#elif defined(LAYOUT_tn)
// A is [K, M]. TM / 2 lanes each load a pair of rows of the tile; TM <= 2 * S.
void multiply() {
  const uint n2 = p.n / 2;
  const uint m2 = p.m / 2;
  uint b_column[TC / 2];
  FOR_PAIRS(j) { b_column[j] = o.b / 2 + min(column(n0, lane, 2 * j) / 2, n2 - 1); }
  const uint a_column = o.a / 2 + min(m0 / 2 + lane % (TM / 2), m2 - 1);
  Pairs a = Pairs(p.a);
  const uint whole = p.k / 4 * 4;
  for (uint k = 0; k < whole; k += 4) {
    vec2 ar[4];
    [[unroll]] for (uint kk = 0; kk < 4; ++kk) {
      ar[kk] = as_pair(a.v[a_column + (k + kk) * m2]);
    }
    [[unroll]] for (uint kk = 0; kk < 4; ++kk) {
      LOAD_PAIRS_OF_ROW(br, k + kk)
      FOR_ROWS(i) {
        const A x = subgroupShuffle((i & 1) == 0 ? ar[kk].x : ar[kk].y, i / 2);
        ADD_PAIRS(i, x, br)
      }
    }
  }
  for (uint k = whole; k < p.k; ++k) {
    const vec2 ar = as_pair(a.v[a_column + k * m2]);
    LOAD_PAIRS_OF_ROW(br, k)
    FOR_ROWS(i) {
      const A x = subgroupShuffle((i & 1) == 0 ? ar.x : ar.y, i / 2);
      ADD_PAIRS(i, x, br)
    }
  }
}
#elif defined(LAYOUT_codes)
void multiply() {
  for (uint k = 0; k < p.k; k += S) {
    A ar[TM];
    FOR_ROWS(i) {
      const A x = load_a(o.a, min(m0 + i, p.m - 1), min(k + lane, p.k - 1));
      ar[i] = k + lane < p.k ? x : 0;
    }
    for (uint kk = 0; kk < min(S, p.k - k); ++kk) {
      A br[TC];
      FOR_COLUMNS(j) { br[j] = load_b(o.b, k + kk, min(column(n0, lane, j), p.n - 1)); }
      FOR_ROWS(i) {
        const A x = subgroupShuffle(ar[i], kk);
        ADD_COLUMNS(i, x, br)
      }
    }
  }
}
#else
void multiply() {
  uint a_row[TM];
  uint b_column[TC];
  FOR_ROWS(i) { a_row[i] = o.a + min(m0 + i, p.m - 1) * p.a_m; }
  FOR_COLUMNS(j) { b_column[j] = o.b + min(column(n0, lane, j), p.n - 1) * p.b_n; }
  for (uint k = 0; k < p.k; k += S) {
    A ar[TM];
    FOR_ROWS(i) { ar[i] = k + lane < p.k ? p.a.v[a_row[i] + (k + lane) * p.a_k] : 0; }
    [[unroll]] for (uint kk = 0; kk < S; ++kk) {
      if (k + kk < p.k) {
        A br[TC];
        FOR_COLUMNS(j) { br[j] = p.b.v[b_column[j] + (k + kk) * p.b_k]; }
        FOR_ROWS(i) {
          const A x = subgroupShuffle(ar[i], kk);
          ADD_COLUMNS(i, x, br)
        }
      }
    }
  }
}
#endif

void main() {
  const uint per_matrix = p.groups_x * p.groups_y;
  const uint group = group_index();
  const uint z = group / per_matrix;
  if (z >= p.batches) {
    return;
  }
  const uint tile = group - z * per_matrix;
  m0 = (tile / p.groups_x) * TM;
  n0 = (tile % p.groups_x) * S * TC;
  o = batch_offsets(z);
  [[unroll]] for (uint i = 0; i < TM * TC; ++i) {
    acc[i] = 0;
  }
  multiply();
  FOR_COLUMNS(j) {
    const uint n = column(n0, lane, j);
    if (n < p.n) {
      const A bias = p.has_bias != 0 ? p.bias.v[n] : 0;
      FOR_ROWS(i) {
        if (m0 + i < p.m) {
          p.c.v[o.c + (m0 + i) * p.n + n] = acc[i * TC + j] + bias;
        }
      }
    }
  }
}
