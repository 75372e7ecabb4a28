//! variants PART=forward,backward,channels T=f32,f16,bf16
// With h = (x - mean) * s, s = 1 / sqrt(variance + eps), g = dy * scale, over the channels of a
// group of one sample:
//   forward   y = h * scale + bias: one subgroup per group
//   backward  dx = s * (g - mean(g) - h * mean(g * h)): one subgroup per group; keeps (mean, s)
//   channels  dscale = sum of dy * h, dbias = sum of dy over the samples: one subgroup per channel
#include "common.glsl"
#include "moments.glsl"
#include "index.glsl"
#include "offsets.glsl"

layout(constant_id = 1) const uint RANK = 1;

layout(push_constant, scalar) uniform Push {
  Elements x;
  Elements scale;
  Elements bias_or_dy;
  Elements y_or_dx;
  Elements dscale;
  Elements dbias;
  Floats stats;  // [batch * groups, 2]
  Words dims;  // of the elements of a group, whose offset is their channel, see index.glsl
  uint rows;  // subgroups
  uint n;  // elements per group
  uint groups;
  uint channels;  // per group
  uint plane;
  uint batch;
  float eps;
} p;

DEFINE_OFFSET(channel_in_group, RANK)
#define CHANNEL(i) (group * p.channels + channel_in_group(i, loop_dim, loop_magic, loop_shift, loop_stride))

#if defined(PART_channels)
void main() {
  ROW_OF_SUBGROUP(c, p.rows)
  A dscale = 0;
  A dbias = 0;
  for (uint n = 0; n < p.batch; ++n) {
    const uint of_group = 2 * (n * p.groups + c / p.channels);
    const A mean = p.stats.v[of_group];
    const A s = p.stats.v[of_group + 1];
    const uint start = (n * p.rows + c) * p.plane;
    for (uint i = gl_SubgroupInvocationID; i < p.plane; i += gl_SubgroupSize) {
      const A dy = read(p.bias_or_dy, start + i);
      dbias += dy;
      dscale += dy * ((read(p.x, start + i) - mean) * s);
    }
  }
  dscale = subgroupAdd(dscale);
  dbias = subgroupAdd(dbias);
  if (subgroupElect()) {
    write(p.dscale, c, dscale);
    write(p.dbias, c, dbias);
  }
}
#else
void main() {
  LOAD_TABLE(p.dims, 0, RANK, loop)
  LOAD_STRIDES(p.dims, 0, RANK, 0, loop_stride)
  ROW_OF_SUBGROUP(row, p.rows)
  const uint start = row * p.n;
  const uint group = row % p.groups;
  const uint lane = gl_SubgroupInvocationID;
  const A count = A(p.n);
  A mean;
  A s;
  moments(p.x, start, p.n, p.eps, mean, s);
#if defined(PART_forward)
  for (uint i = lane; i < p.n; i += gl_SubgroupSize) {
    const uint c = CHANNEL(i);
    const A h = (read(p.x, start + i) - mean) * s;
    write(p.y_or_dx, start + i, h * read(p.scale, c) + read(p.bias_or_dy, c));
  }
#else
  A sum_g = 0;
  A sum_gh = 0;
  for (uint i = lane; i < p.n; i += gl_SubgroupSize) {
    const A g = read(p.bias_or_dy, start + i) * read(p.scale, CHANNEL(i));
    sum_g += g;
    sum_gh += g * ((read(p.x, start + i) - mean) * s);
  }
  const A mean_g = subgroupAdd(sum_g) / count;
  const A mean_gh = subgroupAdd(sum_gh) / count;
  for (uint i = lane; i < p.n; i += gl_SubgroupSize) {
    const A g = read(p.bias_or_dy, start + i) * read(p.scale, CHANNEL(i));
    const A h = (read(p.x, start + i) - mean) * s;
    write(p.y_or_dx, start + i, s * (g - mean_g - h * mean_gh));
  }
  if (subgroupElect()) {
    p.stats.v[2 * row] = mean;
    p.stats.v[2 * row + 1] = s;
  }
#endif
}
#endif
