//! variants KIND=layer,rms PART=rows,columns T=f32,f16,bf16
// With xhat = (x - mean) * r and g = dy * gamma:
//   rows     dx = r * (g - mean g - xhat * mean(g xhat)), for rms with mean 0 and without "mean g";
//            keeps (mean, r)
//   columns  dgamma = sum over rows of dy * xhat, dbeta = sum of dy: one invocation per column and
//            part of the rows
#include "common.glsl"
#include "moments.glsl"

layout(push_constant, scalar) uniform Push {
  Elements x;
  Elements gamma;
  Elements dy;
  Elements dx;
  Floats stats;   // [rows, 2]
  Floats dgamma;  // [parts, n]
  Floats dbeta;   // [parts, n]
  uint rows;
  uint n;
  float eps;
  uint rows_per_part;
  uint parts;
  uint per_group;
} p;

#if defined(PART_rows)
void main() {
  ROW_OF_SUBGROUP(row, p.rows)
  const uint start = row * p.n;
  const uint lane = gl_SubgroupInvocationID;
  const A count = A(p.n);
  A mean;
  A r;
  moments(p.x, start, p.n, p.eps, mean, r);
  A sum_g = 0;
  A sum_gx = 0;
  for (uint i = lane; i < p.n; i += gl_SubgroupSize) {
    const A g = read(p.dy, start + i) * read(p.gamma, i);
    sum_g += g;
    sum_gx += g * (read(p.x, start + i) - mean) * r;
  }
  const A mean_g = CENTRED ? subgroupAdd(sum_g) / count : 0;
  const A mean_gx = subgroupAdd(sum_gx) / count;
  for (uint i = lane; i < p.n; i += gl_SubgroupSize) {
    const A g = read(p.dy, start + i) * read(p.gamma, i);
    const A xhat = (read(p.x, start + i) - mean) * r;
    write(p.dx, start + i, r * (g - mean_g - xhat * mean_gx));
  }
  if (subgroupElect()) {
    p.stats.v[2 * row] = mean;
    p.stats.v[2 * row + 1] = r;
  }
}
#else
const uint UNROLL = 4;

void main() {
  const uint total = p.parts * p.n;
  FOR_ELEMENTS(at, total) {
    const uint part = at / p.n;
    const uint column = at - part * p.n;
    const uint begin = part * p.rows_per_part;
    const uint end = min(begin + p.rows_per_part, p.rows);
    A dgamma = 0;
    A dbeta = 0;
    for (uint first = begin; first < end; first += UNROLL) {
      A dy[UNROLL];  // independent loads
      A x[UNROLL];
      A mean[UNROLL];
      A r[UNROLL];
      [[unroll]] for (uint j = 0; j < UNROLL; ++j) {
        const uint row = min(first + j, end - 1);
        dy[j] = read(p.dy, row * p.n + column);
        x[j] = read(p.x, row * p.n + column);
        mean[j] = p.stats.v[2 * row];
        r[j] = p.stats.v[2 * row + 1];
      }
      [[unroll]] for (uint j = 0; j < UNROLL; ++j) {
        const bool is_row = first + j < end;
        dgamma += is_row ? dy[j] * (x[j] - mean[j]) * r[j] : 0;
        dbeta += is_row ? dy[j] : 0;
      }
    }
    p.dgamma.v[at] = dgamma;
#if defined(KIND_layer)
    p.dbeta.v[at] = dbeta;
#endif
  }
}
#endif
