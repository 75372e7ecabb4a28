//! ops(f32, f16, bf16) BatchNorm BatchNormGrad GroupNorm InstanceNorm GroupNormGrad
// Norms over channels: one block per channel of the batch, or per group of a sample.
#include "device/begin.cuh"
#include "device/rows.cuh"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::channel_norm_kernels {
namespace {

// [batch, channels, elements of a plane].
struct Planes {
  uint64_t batch, channels, plane;

  __device__ uint64_t of_channel() const { return batch * plane; }
  // Element i of a channel.
  __device__ uint64_t at(uint64_t channel, uint64_t i) const {
    return (i / plane * channels + channel) * plane + i % plane;
  }
};

Planes planes_of(const Shape& x) {
  const auto u = [](int64_t n) { return static_cast<uint64_t>(n); };
  return {u(x[0]), u(x[1]), u(x.elements(2, x.rank()))};
}

// The sum of term(i) for i below n over the block. All threads get it.
template <class F>
__device__ float block_sum(uint64_t n, F&& term) {
  float sum = 0;
  for (uint64_t i = threadIdx.x; i < n; i += kRowThreads) {
    sum += term(i);
  }
  return team_sum<kRowThreads>(sum);
}

template <class T>
struct BatchNormOperands {
  const T *x, *scale, *bias;
  float *running_mean, *running_variance;
  T* y;
  float *mean, *inverse;
};

template <class T>
__global__ void batch_norm_kernel(BatchNormOperands<T> o, Planes p, const uint32_t* training,
                                  float eps, float momentum) {
  begin_kernel();
  const uint64_t c = blockIdx.x;
  const uint64_t n = p.of_channel();
  const auto count = static_cast<float>(n < 1 ? 1 : n);
  float mean = o.running_mean[c];
  float variance = o.running_variance[c];
  if (*training != 0) {
    const float old_mean = mean;
    const float old_variance = variance;
    mean = block_sum(n, [&](uint64_t i) { return read(o.x + p.at(c, i)); }) / count;
    const float squares = block_sum(n, [&](uint64_t i) {
      const float d = read(o.x + p.at(c, i)) - mean;
      return d * d;
    });
    variance = squares / count;
    if (threadIdx.x == 0 && n > 0) {
      const float unbiased = squares / static_cast<float>(n < 2 ? 1 : n - 1);
      o.running_mean[c] = old_mean + momentum * (mean - old_mean);
      o.running_variance[c] = old_variance + momentum * (unbiased - old_variance);
    }
  }
  const float inverse = 1 / sqrtf(variance + eps);
  if (threadIdx.x == 0) {
    o.mean[c] = mean;
    o.inverse[c] = inverse;
  }
  const float scale = inverse * read(o.scale + c);
  const float bias = read(o.bias + c);
  for (uint64_t i = threadIdx.x; i < n; i += kRowThreads) {
    write(o.y + p.at(c, i), (read(o.x + p.at(c, i)) - mean) * scale + bias);
  }
}

template <class T>
void batch_norm(Launch& l) {
  const auto& t = l.attributes<BatchNormAttributes>();
  const Planes p = planes_of(l.in_shape(0));
  const BatchNormOperands<T> o{l.in_as<T>(0), l.in_as<T>(1),  l.in_as<T>(2), l.out(1),
                               l.out(2),      l.out_as<T>(0), l.out(3),      l.out(4)};
  l.launch("batch norm", batch_norm_kernel<T>, static_cast<unsigned>(p.channels), kRowThreads, o, p,
           l.step(step::batch_norm::training), t.eps(), t.momentum());
}

template <class T>
struct BatchNormGradOperands {
  const T *x, *scale, *dy;
  const float *mean, *inverse;
  T *dx, *dscale, *dbias;
};

template <class T>
__global__ void batch_norm_grad_kernel(BatchNormGradOperands<T> o, Planes p,
                                       const uint32_t* training) {
  begin_kernel();
  const uint64_t c = blockIdx.x;
  const uint64_t n = p.of_channel();
  const auto count = static_cast<float>(n < 1 ? 1 : n);
  const float mean = o.mean[c];
  const float inverse = o.inverse[c];
  const auto h = [&](uint64_t at) { return (read(o.x + at) - mean) * inverse; };
  const float sum = block_sum(n, [&](uint64_t i) { return read(o.dy + p.at(c, i)); });
  const float products = block_sum(n, [&](uint64_t i) {
    const uint64_t at = p.at(c, i);
    return read(o.dy + at) * h(at);
  });
  if (threadIdx.x == 0) {
    write(o.dscale + c, products);
    write(o.dbias + c, sum);
  }
  const bool trains = *training != 0;
  const float scale = inverse * read(o.scale + c);
  for (uint64_t i = threadIdx.x; i < n; i += kRowThreads) {
    const uint64_t at = p.at(c, i);
    const float dy = read(o.dy + at);
    write(o.dx + at, scale * (trains ? dy - sum / count - h(at) * (products / count) : dy));
  }
}

template <class T>
void batch_norm_grad(Launch& l) {
  const Planes p = planes_of(l.in_shape(0));
  const BatchNormGradOperands<T> o{l.in_as<T>(0), l.in_as<T>(1),  l.in_as<T>(2),  l.in(3),
                                   l.in(4),       l.out_as<T>(0), l.out_as<T>(1), l.out_as<T>(2)};
  l.launch("gradient of a batch norm", batch_norm_grad_kernel<T>, static_cast<unsigned>(p.channels),
           kRowThreads, o, p, l.step(step::batch_norm_grad::training));
}

// The channels of a group of one sample are contiguous.
struct Group {
  uint64_t groups;    // per sample
  uint64_t channels;  // per group
  float eps;
};

struct Statistics {
  float mean, scale;
};

template <class T>
__device__ Statistics statistics(const T* x, uint64_t n, float eps) {
  const auto count = static_cast<float>(n);
  const float mean = block_sum(n, [&](uint64_t i) { return read(x + i); }) / count;
  const float squares = block_sum(n, [&](uint64_t i) {
    const float d = read(x + i) - mean;
    return d * d;
  });
  return {mean, 1 / sqrtf(squares / count + eps)};
}

template <class T>
__global__ void group_norm_kernel(const T* x, const T* scale, const T* bias, T* y, Planes p,
                                  Group g) {
  begin_kernel();
  const uint64_t n = g.channels * p.plane;
  const uint64_t start = uint64_t{blockIdx.x} * n;
  const uint64_t first = blockIdx.x % g.groups * g.channels;
  const Statistics s = statistics(x + start, n, g.eps);
  for (uint64_t i = threadIdx.x; i < n; i += kRowThreads) {
    const uint64_t c = first + i / p.plane;
    write(y + start + i,
          (read(x + start + i) - s.mean) * s.scale * read(scale + c) + read(bias + c));
  }
}

// Keeps (mean, s) of every group for the sums over the samples.
template <class T>
__global__ void group_norm_grad_kernel(const T* x, const T* scale, const T* dy, T* dx, float* kept,
                                       Planes p, Group g) {
  begin_kernel();
  const uint64_t n = g.channels * p.plane;
  const auto count = static_cast<float>(n);
  const uint64_t start = uint64_t{blockIdx.x} * n;
  const uint64_t first = blockIdx.x % g.groups * g.channels;
  const Statistics s = statistics(x + start, n, g.eps);
  const auto weighted = [&](uint64_t i) {
    return read(dy + start + i) * read(scale + first + i / p.plane);
  };
  const auto h = [&](uint64_t i) { return (read(x + start + i) - s.mean) * s.scale; };
  const float mean_g = block_sum(n, weighted) / count;
  const float mean_gh = block_sum(n, [&](uint64_t i) { return weighted(i) * h(i); }) / count;
  for (uint64_t i = threadIdx.x; i < n; i += kRowThreads) {
    write(dx + start + i, s.scale * (weighted(i) - mean_g - h(i) * mean_gh));
  }
  if (threadIdx.x == 0) {
    kept[2 * uint64_t{blockIdx.x}] = s.mean;
    kept[2 * uint64_t{blockIdx.x} + 1] = s.scale;
  }
}

template <class T>
__global__ void group_norm_channels_kernel(const T* x, const T* dy, const float* kept, T* dscale,
                                           T* dbias, Planes p, Group g) {
  begin_kernel();
  const uint64_t c = blockIdx.x;
  const float sum = block_sum(p.of_channel(), [&](uint64_t i) { return read(dy + p.at(c, i)); });
  const float products = block_sum(p.of_channel(), [&](uint64_t i) {
    const float* const s = kept + 2 * (i / p.plane * g.groups + c / g.channels);
    const uint64_t at = p.at(c, i);
    return read(dy + at) * ((read(x + at) - s[0]) * s[1]);
  });
  if (threadIdx.x == 0) {
    write(dscale + c, products);
    write(dbias + c, sum);
  }
}

template <class T>
void normalise(Launch& l, int64_t groups, float eps) {
  const Planes p = planes_of(l.in_shape(0));
  if (l.in_shape(0).elements() == 0) {
    return;
  }
  const Group g{static_cast<uint64_t>(groups), p.channels / static_cast<uint64_t>(groups), eps};
  l.launch("group norm", group_norm_kernel<T>, static_cast<unsigned>(p.batch * g.groups),
           kRowThreads, l.in_as<T>(0), l.in_as<T>(1), l.in_as<T>(2), l.out_as<T>(0), p, g);
}

template <class T>
void group_norm(Launch& l) {
  const auto& t = l.attributes<GroupNormAttributes>();
  normalise<T>(l, t.groups(), t.eps());
}
template <class T>
void instance_norm(Launch& l) {
  normalise<T>(l, l.in_shape(0)[1], l.attributes<InstanceNormAttributes>().eps());
}

uint64_t group_norm_grad_workspace(const NodeView& node) {
  return static_cast<uint64_t>(node.in(0)[0] * node.attributes<GroupNormAttributes>().groups()) *
         2 * sizeof(float);
}

template <class T>
void group_norm_grad(Launch& l) {
  const auto& t = l.attributes<GroupNormAttributes>();
  const Planes p = planes_of(l.in_shape(0));
  const Group g{static_cast<uint64_t>(t.groups()), p.channels / static_cast<uint64_t>(t.groups()),
                t.eps()};
  if (l.in_shape(0).elements() > 0) {
    l.launch("gradient of a group norm", group_norm_grad_kernel<T>,
             static_cast<unsigned>(p.batch * g.groups), kRowThreads, l.in_as<T>(0), l.in_as<T>(1),
             l.in_as<T>(2), l.out_as<T>(0), l.workspace(), p, g);
  }
  l.launch("channels of a group norm", group_norm_channels_kernel<T>,
           static_cast<unsigned>(p.channels), kRowThreads, l.in_as<T>(0), l.in_as<T>(2),
           static_cast<const float*>(l.workspace()), l.out_as<T>(1), l.out_as<T>(2), p, g);
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(batch_norm, .run = batch_norm<T>);
BOWLINE_KERNELS_OF_FLOATS(batch_norm_grad, .run = batch_norm_grad<T>);
BOWLINE_KERNELS_OF_FLOATS(group_norm, .run = group_norm<T>);
BOWLINE_KERNELS_OF_FLOATS(instance_norm, .run = instance_norm<T>);
BOWLINE_KERNELS_OF_FLOATS(group_norm_grad, .run = group_norm_grad<T>,
                          .workspace = group_norm_grad_workspace);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::channel_norm_kernels
