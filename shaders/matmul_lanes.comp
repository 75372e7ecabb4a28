//! variants LAYOUT=nt,nn,tn,any,codes
#version 460
#extension GL_GOOGLE_include_directive : require
// Matrix product for devices whose lanes are vector elements of a CPU. A workgroup is one subgroup
// without barriers. It keeps a tile of TM rows x S * TC columns in registers, and passes A between
// lanes by shuffles with constant indices. Rows and columns past the edge are clamped while loading
// and skipped while storing. Pairs of neighbours are loaded as 64 bits, so K must be even for nt, K
// and N for nn, M and N for tn. `any` and `codes` have no such requirement.
#include "common.glsl"
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

#if defined(LAYOUT_codes)
#define CODES
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

void main() {
  const uint lane = gl_SubgroupInvocationID;
  const uint per_matrix = p.groups_x * p.groups_y;
  const uint group = group_index();
  const uint z = group / per_matrix;
  if (z >= p.batches) {
    return;
  }
  const uint tile = group - z * per_matrix;
  const uint m0 = (tile / p.groups_x) * TM;
  const uint n0 = (tile % p.groups_x) * S * TC;
  const BatchOffsets o = batch_offsets(z);
  A acc[TM * TC];
  [[unroll]] for (uint i = 0; i < TM * TC; ++i) {
    acc[i] = 0;
  }

#if defined(LAYOUT_nt)
  const uint k2 = p.k / 2;
  uint a_row[TM];
  uint b_row[TC];
  [[unroll]] for (uint i = 0; i < TM; ++i) {
    a_row[i] = o.a / 2 + min(m0 + i, p.m - 1) * k2;
  }
  [[unroll]] for (uint j = 0; j < TC; ++j) {
    b_row[j] = o.b / 2 + min(column(n0, lane, j), p.n - 1) * k2;
  }
  Pairs a = Pairs(p.a);
  Pairs b = Pairs(p.b);
  const uint whole = k2 / S * S;
  for (uint k = 0; k < whole; k += S) {
    vec2 ar[TM];
    [[unroll]] for (uint i = 0; i < TM; ++i) {
      ar[i] = as_pair(a.v[a_row[i] + k + lane]);
    }
    [[unroll]] for (uint kk = 0; kk < S; ++kk) {
      vec2 br[TC];
      [[unroll]] for (uint j = 0; j < TC; ++j) {
        br[j] = as_pair(b.v[b_row[j] + k + kk]);
      }
      [[unroll]] for (uint i = 0; i < TM; ++i) {
        const A ax = subgroupShuffle(ar[i].x, kk);
        const A ay = subgroupShuffle(ar[i].y, kk);
        [[unroll]] for (uint j = 0; j < TC; ++j) {
          acc[i * TC + j] += ax * br[j].x;
          acc[i * TC + j] += ay * br[j].y;
        }
      }
    }
  }
  for (uint k = whole; k < k2; ++k) {
    vec2 br[TC];
    [[unroll]] for (uint j = 0; j < TC; ++j) {
      br[j] = as_pair(b.v[b_row[j] + k]);
    }
    [[unroll]] for (uint i = 0; i < TM; ++i) {
      const vec2 x = as_pair(a.v[a_row[i] + clamp_index(k, k2)]);
      [[unroll]] for (uint j = 0; j < TC; ++j) {
        acc[i * TC + j] += x.x * br[j].x;
        acc[i * TC + j] += x.y * br[j].y;
      }
    }
  }
#elif defined(LAYOUT_nn)
  const uint n2 = p.n / 2;
  const uint k2 = p.k / 2;
  uint a_row[TM];
  uint b_column[TC / 2];
  [[unroll]] for (uint i = 0; i < TM; ++i) {
    a_row[i] = o.a / 2 + min(m0 + i, p.m - 1) * k2;
  }
  [[unroll]] for (uint j = 0; j < TC / 2; ++j) {
    b_column[j] = o.b / 2 + min(column(n0, lane, 2 * j) / 2, n2 - 1);
  }
  Pairs a = Pairs(p.a);
  Pairs b = Pairs(p.b);
  const uint whole = k2 / S * S;
  for (uint k = 0; k < whole; k += S) {
    vec2 ar[TM];
    [[unroll]] for (uint i = 0; i < TM; ++i) {
      ar[i] = as_pair(a.v[a_row[i] + k + lane]);
    }
    [[unroll]] for (uint kk = 0; kk < 2 * S; ++kk) {
      vec2 br[TC / 2];
      [[unroll]] for (uint j = 0; j < TC / 2; ++j) {
        br[j] = as_pair(b.v[b_column[j] + (2 * k + kk) * n2]);
      }
      [[unroll]] for (uint i = 0; i < TM; ++i) {
        const A x = subgroupShuffle((kk & 1) == 0 ? ar[i].x : ar[i].y, kk / 2);
        [[unroll]] for (uint j = 0; j < TC / 2; ++j) {
          acc[i * TC + 2 * j] += x * br[j].x;
          acc[i * TC + 2 * j + 1] += x * br[j].y;
        }
      }
    }
  }
  for (uint k = 2 * whole; k < p.k; ++k) {
    vec2 br[TC / 2];
    [[unroll]] for (uint j = 0; j < TC / 2; ++j) {
      br[j] = as_pair(b.v[b_column[j] + k * n2]);
    }
    [[unroll]] for (uint i = 0; i < TM; ++i) {
      const A x = p.a.v[2 * a_row[i] + clamp_index(k, p.k)];
      [[unroll]] for (uint j = 0; j < TC / 2; ++j) {
        acc[i * TC + 2 * j] += x * br[j].x;
        acc[i * TC + 2 * j + 1] += x * br[j].y;
      }
    }
  }
#elif defined(LAYOUT_tn)
// A is [K, M]. TM / 2 lanes each load a pair of rows of the tile; TM <= 2 * S.
  const uint n2 = p.n / 2;
  const uint m2 = p.m / 2;
  uint b_column[TC / 2];
  [[unroll]] for (uint j = 0; j < TC / 2; ++j) {
    b_column[j] = o.b / 2 + min(column(n0, lane, 2 * j) / 2, n2 - 1);
  }
  const uint a_column = o.a / 2 + min(m0 / 2 + lane % (TM / 2), m2 - 1);
  Pairs a = Pairs(p.a);
  Pairs b = Pairs(p.b);
  const uint whole = p.k / 4 * 4;
  for (uint k = 0; k < whole; k += 4) {
    vec2 ar[4];
    [[unroll]] for (uint kk = 0; kk < 4; ++kk) {
      ar[kk] = as_pair(a.v[a_column + (k + kk) * m2]);
    }
    [[unroll]] for (uint kk = 0; kk < 4; ++kk) {
      vec2 br[TC / 2];
      [[unroll]] for (uint j = 0; j < TC / 2; ++j) {
        br[j] = as_pair(b.v[b_column[j] + (k + kk) * n2]);
      }
      [[unroll]] for (uint i = 0; i < TM; ++i) {
        const A x = subgroupShuffle((i & 1) == 0 ? ar[kk].x : ar[kk].y, i / 2);
        [[unroll]] for (uint j = 0; j < TC / 2; ++j) {
          acc[i * TC + 2 * j] += x * br[j].x;
          acc[i * TC + 2 * j + 1] += x * br[j].y;
        }
      }
    }
  }
  for (uint k = whole; k < p.k; ++k) {
    const vec2 ar = as_pair(a.v[a_column + k * m2]);
    vec2 br[TC / 2];
    [[unroll]] for (uint j = 0; j < TC / 2; ++j) {
      br[j] = as_pair(b.v[b_column[j] + k * n2]);
    }
    [[unroll]] for (uint i = 0; i < TM; ++i) {
      const A x = subgroupShuffle((i & 1) == 0 ? ar.x : ar.y, i / 2);
      [[unroll]] for (uint j = 0; j < TC / 2; ++j) {
        acc[i * TC + 2 * j] += x * br[j].x;
        acc[i * TC + 2 * j + 1] += x * br[j].y;
      }
    }
  }
#elif defined(LAYOUT_codes)
  for (uint k = 0; k < p.k; k += S) {
    A ar[TM];
    [[unroll]] for (uint i = 0; i < TM; ++i) {
      const A x = load_a(o.a, min(m0 + i, p.m - 1), min(k + lane, p.k - 1));
      ar[i] = k + lane < p.k ? x : 0;
    }
    for (uint kk = 0; kk < min(S, p.k - k); ++kk) {
      A br[TC];
      [[unroll]] for (uint j = 0; j < TC; ++j) {
        br[j] = load_b(o.b, k + kk, min(column(n0, lane, j), p.n - 1));
      }
      [[unroll]] for (uint i = 0; i < TM; ++i) {
        const A x = subgroupShuffle(ar[i], kk);
        [[unroll]] for (uint j = 0; j < TC; ++j) {
          acc[i * TC + j] += x * br[j];
        }
      }
    }
  }
#else
  uint a_row[TM];
  uint b_column[TC];
  [[unroll]] for (uint i = 0; i < TM; ++i) {
    a_row[i] = o.a + min(m0 + i, p.m - 1) * p.a_m;
  }
  [[unroll]] for (uint j = 0; j < TC; ++j) {
    b_column[j] = o.b + min(column(n0, lane, j), p.n - 1) * p.b_n;
  }
  for (uint k = 0; k < p.k; k += S) {
    A ar[TM];
    [[unroll]] for (uint i = 0; i < TM; ++i) {
      ar[i] = k + lane < p.k ? p.a.v[a_row[i] + (k + lane) * p.a_k] : 0;
    }
    [[unroll]] for (uint kk = 0; kk < S; ++kk) {
      if (k + kk < p.k) {
        A br[TC];
        [[unroll]] for (uint j = 0; j < TC; ++j) {
          br[j] = p.b.v[b_column[j] + (k + kk) * p.b_k];
        }
        [[unroll]] for (uint i = 0; i < TM; ++i) {
          const A x = subgroupShuffle(ar[i], kk);
          [[unroll]] for (uint j = 0; j < TC; ++j) {
            acc[i * TC + j] += x * br[j];
          }
        }
      }
    }
  }
#endif

  [[unroll]] for (uint j = 0; j < TC; ++j) {
    const uint n = column(n0, lane, j);
    if (n < p.n) {
      const A bias = p.has_bias != 0 ? p.bias.v[n] : 0;
      [[unroll]] for (uint i = 0; i < TM; ++i) {
        if (m0 + i < p.m) {
          p.c.v[o.c + (m0 + i) * p.n + n] = acc[i * TC + j] + bias;
        }
      }
    }
  }
}
