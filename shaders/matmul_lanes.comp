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
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer PairsOfC { uint64_t v[]; };

layout(constant_id = 1) const uint TM = 16;  // rows per workgroup
layout(constant_id = 3) const uint TC = 4;   // columns per lane
const uint S = gl_WorkGroupSize.x;           // lanes
// Steps of k per iteration: fewer for large tiles, whose code would become too long.
const uint UNROLLED = TM * TC < 512 ? 512 / (TM * TC) : 1;
// Vectors with an element of each row, or with a pair of rows.
const uint LOADS = (TM + S - 1) / S;
const uint LOADS_OF_PAIRS = (TM / 2 + S - 1) / S;

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
// Adds a * b to row i: b has one column per element, or a pair of them.
#define ADD_COLUMNS(i, a, b) FOR_COLUMNS(j) { acc[(i) * TC + j] += (a) * b[j]; }
#define ADD_PAIRS(i, a, b)                       \
  FOR_PAIRS(j) {                                 \
    acc[(i) * TC + 2 * j] += (a) * b[j].x;       \
    acc[(i) * TC + 2 * j + 1] += (a) * b[j].y;   \
  }
#define FOR_LOADS(i) [[unroll]] for (uint i = 0; i < LOADS; ++i)
#define FOR_LOADS_OF_PAIRS(i) [[unroll]] for (uint i = 0; i < LOADS_OF_PAIRS; ++i)
// Declares the pairs of row k of B [K, N] that belong to the columns of this lane.
#define LOAD_PAIRS_OF_ROW(pairs, k)                                       \
  vec2 pairs[TC / 2];                                                     \
  FOR_PAIRS(j) { pairs[j] = as_pair(Pairs(p.b).v[b_column[j] + (k) * n2]); }
// Calls step(k) for all k < count.
#define FOR_STEPS(step, count)                                            \
  const uint whole = (count) / UNROLLED * UNROLLED;                       \
  for (uint k = 0; k < whole; k += UNROLLED) {                            \
    [[unroll]] for (uint kk = 0; kk < UNROLLED; ++kk) { step(k + kk); }   \
  }                                                                       \
  if (UNROLLED > 1) {                                                     \
    for (uint k = whole; k < (count); ++k) { step(k); }                   \
  }

// A load costs more than the products of a row: a lane loads a pair of neighbours, and each element
// of A once per workgroup.
#if defined(LAYOUT_nt)
uint a_row[LOADS];
uint b_row[TC];
void add_pair(uint k) {
  vec2 ar[LOADS];
  vec2 br[TC];
  FOR_LOADS(i) { ar[i] = as_pair(Pairs(p.a).v[a_row[i] + k]); }
  FOR_COLUMNS(j) { br[j] = as_pair(Pairs(p.b).v[b_row[j] + k]); }
  FOR_ROWS(i) {
    const A ax = subgroupShuffle(ar[i / S].x, i % S);
    const A ay = subgroupShuffle(ar[i / S].y, i % S);
    FOR_COLUMNS(j) {
      acc[i * TC + j] += ax * br[j].x;
      acc[i * TC + j] += ay * br[j].y;
    }
  }
}
void multiply() {
  const uint k2 = p.k / 2;
  FOR_LOADS(i) { a_row[i] = o.a / 2 + min(m0 + i * S + lane, p.m - 1) * k2; }
  FOR_COLUMNS(j) { b_row[j] = o.b / 2 + min(column(n0, lane, j), p.n - 1) * k2; }
  FOR_STEPS(add_pair, k2)
}
#elif defined(LAYOUT_nn)
uint n2;
uint a_row[LOADS];
uint b_column[TC / 2];
void add_pair(uint k) {
  vec2 ar[LOADS];
  FOR_LOADS(i) { ar[i] = as_pair(Pairs(p.a).v[a_row[i] + k]); }
  LOAD_PAIRS_OF_ROW(first, 2 * k)
  LOAD_PAIRS_OF_ROW(second, 2 * k + 1)
  FOR_ROWS(i) {
    const A ax = subgroupShuffle(ar[i / S].x, i % S);
    const A ay = subgroupShuffle(ar[i / S].y, i % S);
    ADD_PAIRS(i, ax, first)
    ADD_PAIRS(i, ay, second)
  }
}
void multiply() {
  const uint k2 = p.k / 2;
  n2 = p.n / 2;
  FOR_LOADS(i) { a_row[i] = o.a / 2 + min(m0 + i * S + lane, p.m - 1) * k2; }
  FOR_PAIRS(j) { b_column[j] = o.b / 2 + min(column(n0, lane, 2 * j) / 2, n2 - 1); }
  FOR_STEPS(add_pair, k2)
}
#elif defined(LAYOUT_tn)
// A is [K, M]: a lane loads a pair of rows of the tile.
uint n2;
uint m2;
uint a_column[LOADS_OF_PAIRS];
uint b_column[TC / 2];
void add_row(uint k) {
  vec2 ar[LOADS_OF_PAIRS];
  FOR_LOADS_OF_PAIRS(i) { ar[i] = as_pair(Pairs(p.a).v[a_column[i] + k * m2]); }
  LOAD_PAIRS_OF_ROW(br, k)
  FOR_ROWS(i) {
    const vec2 pair = ar[i / 2 / S];
    const A x = subgroupShuffle((i & 1) == 0 ? pair.x : pair.y, i / 2 % S);
    ADD_PAIRS(i, x, br)
  }
}
void multiply() {
  n2 = p.n / 2;
  m2 = p.m / 2;
  FOR_PAIRS(j) { b_column[j] = o.b / 2 + min(column(n0, lane, 2 * j) / 2, n2 - 1); }
  FOR_LOADS_OF_PAIRS(i) { a_column[i] = o.a / 2 + min(m0 / 2 + i * S + lane, m2 - 1); }
  FOR_STEPS(add_row, p.k)
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

// Rows and columns past the edge are equal to those at the edge, so no condition is needed, which
// would double the code of a large tile.
#if defined(LAYOUT_nn) || defined(LAYOUT_tn)
void store() {
  FOR_PAIRS(j) {
    const uint n = 2 * min(column(n0, lane, 2 * j) / 2, p.n / 2 - 1);
    vec2 bias = vec2(0);
    if (p.has_bias != 0) {
      bias = vec2(p.bias.v[n], p.bias.v[n + 1]);
    }
    FOR_ROWS(i) {
      const vec2 sums = vec2(acc[i * TC + 2 * j], acc[i * TC + 2 * j + 1]) + bias;
      PairsOfC(p.c).v[(o.c + min(m0 + i, p.m - 1) * p.n + n) / 2] =
          packUint2x32(floatBitsToUint(sums));
    }
  }
}
#else
void store() {
  FOR_COLUMNS(j) {
    const uint n = min(column(n0, lane, j), p.n - 1);
    const A bias = p.has_bias != 0 ? p.bias.v[n] : 0;
    FOR_ROWS(i) { p.c.v[o.c + min(m0 + i, p.m - 1) * p.n + n] = acc[i * TC + j] + bias; }
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
  store();
}
