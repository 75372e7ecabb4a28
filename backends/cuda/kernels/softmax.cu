//! ops(f32, f16, bf16) Softmax SoftmaxGrad LogSoftmax LogSoftmaxGrad
// Operators along the last axis: one team per row, in f32.
#include "device/begin.cuh"
#include "device/exponential_sum.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::softmax_kernels {
namespace {

// y = e^(x - top) / sum; kLog: x - top - log(sum)
template <unsigned kTeam, int kWidth, bool kLog, class T>
__global__ void softmax_kernel(const T* x, T* y, uint64_t rows, uint64_t n) {
  begin_kernel();
  const uint64_t row = team_row<kTeam>();
  if (row >= rows) {
    return;
  }
  x += row * n;
  y += row * n;
  const ExponentialSum total = exponential_sum<kTeam, kWidth>(x, n);
  const float scale = kLog ? logf(total.sum) : 1 / total.sum;
  for_row<kTeam, kWidth>(x, n, [&]<int kMany>(uint64_t i) {
    float v[kMany];
    read_some(x + i, v);
    for (int k = 0; k < kMany; ++k) {
      v[k] = kLog ? v[k] - total.top - scale : expf(v[k] - total.top) * scale;
    }
    write_some(y + i, v);
  });
}

// dx = y (dy - sum of y dy); kLog: dy - e^y sum of dy
template <unsigned kTeam, int kWidth, bool kLog, class T>
__global__ void softmax_grad_kernel(const T* y, const T* dy, T* dx, uint64_t rows, uint64_t n) {
  begin_kernel();
  const uint64_t row = team_row<kTeam>();
  if (row >= rows) {
    return;
  }
  y += row * n;
  dy += row * n;
  dx += row * n;
  float sum = 0;
  for_row<kTeam, kWidth>(y, n, [&]<int kMany>(uint64_t i) {
    float u[kMany], v[kMany];
    read_some(y + i, u);
    read_some(dy + i, v);
    for (int k = 0; k < kMany; ++k) {
      sum += kLog ? v[k] : u[k] * v[k];
    }
  });
  sum = team_sum<kTeam>(sum);
  for_row<kTeam, kWidth>(y, n, [&]<int kMany>(uint64_t i) {
    float u[kMany], v[kMany];
    read_some(y + i, u);
    read_some(dy + i, v);
    for (int k = 0; k < kMany; ++k) {
      v[k] = kLog ? v[k] - expf(u[k]) * sum : u[k] * (v[k] - sum);
    }
    write_some(dx + i, v);
  });
}

template <class T, bool kLog>
void softmax(Launch& l) {
  const Shape& x = l.in_shape(0);
  const auto n = static_cast<uint64_t>(x.back());
  launch_packed_rows<T>(
      l, "softmax", rows_of(x), n, aligned_alike(l.in(0), l.out(0)),
      [](auto team, auto width) { return softmax_kernel<team(), width(), kLog, T>; }, l.in_as<T>(0),
      l.out_as<T>(0), rows_of(x), n);
}

template <class T, bool kLog>
void softmax_grad(Launch& l) {
  const Shape& y = l.in_shape(0);
  const auto n = static_cast<uint64_t>(y.back());
  launch_packed_rows<T>(
      l, "softmax gradient", rows_of(y), n, aligned_alike(l.in(0), l.in(1), l.out(0)),
      [](auto team, auto width) { return softmax_grad_kernel<team(), width(), kLog, T>; },
      l.in_as<T>(0), l.in_as<T>(1), l.out_as<T>(0), rows_of(y), n);
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(softmax, .run = softmax<T, false>);
BOWLINE_KERNELS_OF_FLOATS(softmax_grad, .run = softmax_grad<T, false>);
BOWLINE_KERNELS_OF_FLOATS(log_softmax, .run = softmax<T, true>);
BOWLINE_KERNELS_OF_FLOATS(log_softmax_grad, .run = softmax_grad<T, true>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::softmax_kernels
