//! ops(f32, f16, bf16) BatchNorm BatchNormGrad GroupNorm InstanceNorm GroupNormGrad
// Norms over channels: one task per channel of the batch, or per group of a sample. Sums over
// planes are added in double precision.
#include <algorithm>
#include <cmath>

#include "compute/planes.h"
#include "wide.h"

namespace bowline::detail::cpu::channel_norm_kernels {
namespace {

// [batch, channels, elements of a plane].
struct Planes {
  explicit Planes(const Shape& x)
      : batch(static_cast<size_t>(x[0])),
        channels(static_cast<size_t>(x[1])),
        plane(static_cast<size_t>(x.elements(2, x.rank()))) {}
  size_t at(size_t sample, size_t channel) const { return (sample * channels + channel) * plane; }
  ChannelPlanes of_channel() const { return {batch, channels * plane, plane}; }
  // Of a channel of one sample.
  ChannelPlanes of_sample() const { return {1, plane, plane}; }

  size_t batch, channels, plane;
};

float inverse_root(float x) { return 1.0f / std::sqrt(x); }

// Inference with running statistics: a task gets enough channels to be worth its overhead.
constexpr size_t kElementsOfTask = 4096;
void scale_by_running_statistics(const Launch& l, const Planes& p, float eps) {
  const float *x = l.in[0].f32(), *scale = l.in[1].f32(), *bias = l.in[2].f32();
  const float *running_mean = l.out[1].f32(), *running_variance = l.out[2].f32();
  float *y = l.out[0].f32(), *mean = l.out[3].f32(), *inverse = l.out[4].f32();
  const size_t unit = std::clamp<size_t>(kElementsOfTask / std::max<size_t>(p.batch * p.plane, 1),
                                         1, std::max<size_t>(p.channels, 1));
  l.threads.parallel_for((p.channels + unit - 1) / unit, [&](size_t task, size_t) {
    const size_t begin = task * unit, end = std::min(begin + unit, p.channels);
    for (size_t c = begin; c < end; ++c) {
      mean[c] = running_mean[c];
      inverse[c] = inverse_root(running_variance[c] + eps);
    }
    for (size_t b = 0; b < p.batch; ++b) {
      const size_t at = p.at(b, begin);
      scale_each_plane(end - begin, p.plane, x + at, mean + begin, inverse + begin, scale + begin,
                       bias + begin, y + at);
    }
  });
}

// The running statistics are updated in place, in the memory of the outputs.
void run_batch_norm(const Launch& l) {
  const auto& t = l.attributes<BatchNormAttributes>();
  if (l.step(step::batch_norm::training) == 0) {
    return scale_by_running_statistics(l, Planes(*l.in[0].shape), t.eps());
  }
  const Planes p(*l.in[0].shape);
  const float *x = l.in[0].f32(), *scale = l.in[1].f32(), *bias = l.in[2].f32();
  float *y = l.out[0].f32(), *running_mean = l.out[1].f32(), *running_variance = l.out[2].f32();
  const size_t n = p.batch * p.plane;
  const ChannelPlanes planes = p.of_channel();
  const auto count = static_cast<double>(std::max<size_t>(n, 1));
  l.threads.parallel_for(p.channels, [&](size_t c, size_t) {
    const size_t at = p.at(0, c);
    const auto mean = static_cast<float>(sum_of(planes, x + at) / count);
    const double squares = squares_of(planes, x + at, mean);
    const auto variance = static_cast<float>(squares / count);
    if (n > 0) {
      const auto unbiased =
          static_cast<float>(squares / static_cast<double>(std::max<size_t>(n - 1, 1)));
      running_mean[c] += t.momentum() * (mean - running_mean[c]);
      running_variance[c] += t.momentum() * (unbiased - running_variance[c]);
    }
    const float inverse = inverse_root(variance + t.eps());
    l.out[3].f32()[c] = mean;
    l.out[4].f32()[c] = inverse;
    scale_planes_of(planes, x + at, mean, inverse * scale[c], bias[c], y + at);
  });
}

void run_batch_norm_grad(const Launch& l) {
  const Planes p(*l.in[0].shape);
  const float *x = l.in[0].f32(), *scale = l.in[1].f32(), *dy = l.in[2].f32();
  const float *mean = l.in[3].f32(), *inverse = l.in[4].f32();
  float *dx = l.out[0].f32(), *dscale = l.out[1].f32(), *dbias = l.out[2].f32();
  const bool training = l.step(step::batch_norm_grad::training) != 0;
  const ChannelPlanes planes = p.of_channel();
  const auto count = static_cast<float>(std::max<size_t>(p.batch * p.plane, 1));
  l.threads.parallel_for(p.channels, [&](size_t c, size_t) {
    const size_t at = p.at(0, c);
    const PlaneSums sums = gradient_sums_of(planes, x + at, dy + at, mean[c]);
    const auto sum = static_cast<float>(sums.dy), products = static_cast<float>(sums.products);
    dscale[c] = products * inverse[c];
    dbias[c] = sum;
    const float a = scale[c] * inverse[c];
    const float of_x = training ? -a * inverse[c] * (dscale[c] / count) : 0.0f;
    const float of_one = training ? -a * (sum / count) : 0.0f;
    if (training) {
      mix_planes_of(planes, x + at, dy + at, mean[c], a, of_x, of_one, dx + at);
    } else {
      scale_planes_of(planes, dy + at, 0, a, 0, dx + at);
    }
  });
}

struct Statistics {
  float mean, inverse;
};
Statistics statistics(size_t n, const float* x, float eps) {
  const auto count = static_cast<float>(n);
  const float mean = sum_of(n, x) / count;
  return {mean, inverse_root(squares_of(n, x, mean) / count + eps)};
}

// Calls f(sample, first channel) for every group of `channels` channels of every sample.
template <class F>
void for_groups(Threads& threads, const Planes& p, size_t groups, F&& f) {
  threads.parallel_for(p.batch * groups, [&](size_t task, size_t) {
    f(task / groups, task % groups * (p.channels / groups));
  });
}

void group_norm(const Launch& l, size_t groups, float eps) {
  const Planes p(*l.in[0].shape);
  if (l.in[0].elements() == 0) {
    return;
  }
  const float *x = l.in[0].f32(), *scale = l.in[1].f32(), *bias = l.in[2].f32();
  float* y = l.out[0].f32();
  const size_t channels = p.channels / groups;
  for_groups(l.threads, p, groups, [&](size_t n, size_t first) {
    const Statistics s = statistics(channels * p.plane, x + p.at(n, first), eps);
    for (size_t c = first; c < first + channels; ++c) {
      const size_t at = p.at(n, c);
      scale_planes_of(p.of_sample(), x + at, s.mean, s.inverse * scale[c], bias[c], y + at);
    }
  });
}

void run_group_norm(const Launch& l) {
  const auto& t = l.attributes<GroupNormAttributes>();
  group_norm(l, static_cast<size_t>(t.groups()), t.eps());
}

void run_instance_norm(const Launch& l) {
  group_norm(l, static_cast<size_t>((*l.in[0].shape)[1]),
             l.attributes<InstanceNormAttributes>().eps());
}

// The sums of dy and of dy * h per plane.
uint64_t group_norm_grad_workspace(const device::NodeQuery& node, const Threads&) {
  const Shape& x = node.inputs[0].shape;
  return static_cast<uint64_t>(x[0] * x[1]) * 2 * sizeof(float);
}

void run_group_norm_grad(const Launch& l) {
  const auto& t = l.attributes<GroupNormAttributes>();
  const Planes p(*l.in[0].shape);
  const float *x = l.in[0].f32(), *scale = l.in[1].f32(), *dy = l.in[2].f32();
  float* dx = l.out[0].f32();
  auto* const sums = reinterpret_cast<float*>(l.workspace);
  const auto groups = static_cast<size_t>(t.groups());
  const size_t channels = p.channels / groups;
  if (l.in[0].elements() > 0) {
    for_groups(l.threads, p, groups, [&](size_t n, size_t first) {
      const Statistics s = statistics(channels * p.plane, x + p.at(n, first), t.eps());
      double sum_g = 0, sum_gh = 0;
      for (size_t c = first; c < first + channels; ++c) {
        const size_t at = p.at(n, c);
        float* of_plane = sums + 2 * (n * p.channels + c);
        of_plane[0] = sum_of(p.plane, dy + at);
        of_plane[1] = products_of(p.plane, x + at, dy + at, s.mean) * s.inverse;
        sum_g += static_cast<double>(scale[c] * of_plane[0]);
        sum_gh += static_cast<double>(scale[c] * of_plane[1]);
      }
      const auto count = static_cast<double>(channels * p.plane);
      const auto mean_g = static_cast<float>(sum_g / count);
      const auto mean_gh = static_cast<float>(sum_gh / count);
      for (size_t c = first; c < first + channels; ++c) {
        const size_t at = p.at(n, c);
        mix_planes_of(p.of_sample(), x + at, dy + at, s.mean, s.inverse * scale[c],
                      -s.inverse * s.inverse * mean_gh, -s.inverse * mean_g, dx + at);
      }
    });
  }
  for (size_t c = 0; c < p.channels; ++c) {
    double dscale = 0, dbias = 0;
    for (size_t n = 0; n < p.batch && p.plane > 0; ++n) {
      dbias += static_cast<double>(sums[2 * (n * p.channels + c)]);
      dscale += static_cast<double>(sums[2 * (n * p.channels + c) + 1]);
    }
    l.out[1].f32()[c] = static_cast<float>(dscale);
    l.out[2].f32()[c] = static_cast<float>(dbias);
  }
}

}  // namespace

BOWLINE_CPU_WIDE_KERNELS(batch_norm, run_batch_norm, no_workspace);
BOWLINE_CPU_WIDE_KERNELS(batch_norm_grad, run_batch_norm_grad, no_workspace);
BOWLINE_CPU_WIDE_KERNELS(group_norm, run_group_norm, no_workspace);
BOWLINE_CPU_WIDE_KERNELS(instance_norm, run_instance_norm, no_workspace);
BOWLINE_CPU_WIDE_KERNELS(group_norm_grad, run_group_norm_grad, group_norm_grad_workspace);

}  // namespace bowline::detail::cpu::channel_norm_kernels
