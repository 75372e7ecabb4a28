//! variants DIR=forward,backward,log_forward,log_backward T=f32,f16,bf16
// Operators along the last axis, one subgroup per row.
//   forward       y = exp(x - max x) / sum exp(x - max x)
//   backward      dx = y * (dy - sum y dy)
//   log_forward   y = x - max x - log sum exp(x - max x)
//   log_backward  dx = dy - exp(y) sum dy
#include "common.glsl"
#include "math.glsl"

layout(push_constant, scalar) uniform Push {
  Elements x;   // backward: y
  Elements dy;
  Elements y;   // backward: dx
  uint rows;
  uint dim;
} p;

void main() {
  ROW_OF_SUBGROUP(row, p.rows)
  const uint start = row * p.dim;
  const uint lane = gl_SubgroupInvocationID;
  const uint step = gl_SubgroupSize;
#if defined(DIR_forward) || defined(DIR_log_forward)
  A top = -kInfinity;
  for (uint i = lane; i < p.dim; i += step) {
    top = max(top, read(p.x, start + i));
  }
  top = subgroupMax(top);
  A sum = 0;
  for (uint i = lane; i < p.dim; i += step) {
    const A e = exp_f32(read(p.x, start + i) - top);
    sum += e;
#if defined(DIR_forward) && defined(T_f32)
    p.y.v[start + i] = e;
#endif
  }
  sum = subgroupAdd(sum);
#if defined(DIR_log_forward)
  const A log_sum = log_f32(sum);
#else
  const A inverse = 1 / sum;
#endif
  for (uint i = lane; i < p.dim; i += step) {
#if defined(DIR_log_forward)
    write(p.y, start + i, read(p.x, start + i) - top - log_sum);
#elif defined(T_f32)
    p.y.v[start + i] *= inverse;
#else
    write(p.y, start + i, exp_f32(read(p.x, start + i) - top) * inverse);
#endif
  }
#elif defined(DIR_backward)
  A dot = 0;
  for (uint i = lane; i < p.dim; i += step) {
    dot += read(p.x, start + i) * read(p.dy, start + i);
  }
  dot = subgroupAdd(dot);
  for (uint i = lane; i < p.dim; i += step) {
    write(p.y, start + i, read(p.x, start + i) * (read(p.dy, start + i) - dot));
  }
#else
  A sum = 0;
  for (uint i = lane; i < p.dim; i += step) {
    sum += read(p.dy, start + i);
  }
  sum = subgroupAdd(sum);
  for (uint i = lane; i < p.dim; i += step) {
    write(p.y, start + i, read(p.dy, start + i) - exp_f32(read(p.x, start + i)) * sum);
  }
#endif
}
