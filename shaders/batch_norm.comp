//! variants PART=forward,backward T=f32,f16,bf16
// One subgroup per channel of [batch, channels, plane].
//   forward   y = (x - mean) * inverse * scale + bias. Training uses the statistics of the channel
//             and updates the running statistics; inference uses the running statistics.
//   backward  with h = (x - mean) * inverse:
//             dx = scale * inverse * (dy - mean(dy) - h * mean(dy * h)), without the means if not
//             training; dscale = sum of dy * h, dbias = sum of dy
#include "common.glsl"
#include "index.glsl"
#include "offsets.glsl"
#if defined(PART_forward)
#include "step_batch_norm.glsl"
#else
#include "step_batch_norm_grad.glsl"
#endif

layout(constant_id = 1) const uint RANK = 1;

layout(push_constant, scalar) uniform Push {
  Elements x;
  Elements scale;
#if defined(PART_forward)
  Elements bias;
  Floats running_mean;
  Floats running_variance;
  Elements y;
  Floats mean;
  Floats inverse;
#else
  Elements dy;
  Floats mean;
  Floats inverse;
  Elements dx;
  Elements dscale;
  Elements dbias;
#endif
  Words dims;  // of the elements of a channel, see index.glsl
  STEP_WORDS
  uint channels;
  uint n;  // elements per channel
  uint plane;
  float eps;
  float momentum;
} p;

DEFINE_OFFSET(offset_in_channel, RANK)
#define AT(i) (base + offset_in_channel(i, loop_dim, loop_magic, loop_shift, loop_stride))

void main() {
  LOAD_TABLE(p.dims, 0, RANK, loop)
  LOAD_STRIDES(p.dims, 0, RANK, 0, loop_stride)
  ROW_OF_SUBGROUP(c, p.channels)
  const uint base = c * p.plane;
  const uint lane = gl_SubgroupInvocationID;
  const bool training = step_training != 0;
  const A count = A(max(p.n, 1u));
#if defined(PART_forward)
  A mean = p.running_mean.v[c];
  A variance = p.running_variance.v[c];
  if (training) {
    const A old_mean = mean;
    const A old_variance = variance;
    A sum = 0;
    for (uint i = lane; i < p.n; i += gl_SubgroupSize) {
      sum += read(p.x, AT(i));
    }
    mean = subgroupAdd(sum) / count;
    A squares = 0;
    for (uint i = lane; i < p.n; i += gl_SubgroupSize) {
      const A d = read(p.x, AT(i)) - mean;
      squares += d * d;
    }
    squares = subgroupAdd(squares);
    variance = squares / count;
    if (subgroupElect() && p.n > 0) {
      p.running_mean.v[c] = old_mean + p.momentum * (mean - old_mean);
      p.running_variance.v[c] = old_variance + p.momentum * (squares / A(max(p.n, 2u) - 1) - old_variance);
    }
  }
  const A inverse = 1 / sqrt(variance + p.eps);
  if (subgroupElect()) {
    p.mean.v[c] = mean;
    p.inverse.v[c] = inverse;
  }
  const A scale = inverse * read(p.scale, c);
  const A bias = read(p.bias, c);
  for (uint i = lane; i < p.n; i += gl_SubgroupSize) {
    const uint at = AT(i);
    write(p.y, at, (read(p.x, at) - mean) * scale + bias);
  }
#else
  const A mean = p.mean.v[c];
  const A inverse = p.inverse.v[c];
  A sum = 0;
  A products = 0;
  for (uint i = lane; i < p.n; i += gl_SubgroupSize) {
    const uint at = AT(i);
    const A dy = read(p.dy, at);
    sum += dy;
    products += dy * ((read(p.x, at) - mean) * inverse);
  }
  sum = subgroupAdd(sum);
  products = subgroupAdd(products);
  if (subgroupElect()) {
    write(p.dscale, c, products);
    write(p.dbias, c, sum);
  }
  const A scale = inverse * read(p.scale, c);
  const A mean_dy = training ? sum / count : 0;
  const A mean_dyh = training ? products / count : 0;
  for (uint i = lane; i < p.n; i += gl_SubgroupSize) {
    const uint at = AT(i);
    const A dy = read(p.dy, at);
    const A h = (read(p.x, at) - mean) * inverse;
    write(p.dx, at, training ? scale * (dy - mean_dy - h * mean_dyh) : scale * dy);
  }
#endif
}
