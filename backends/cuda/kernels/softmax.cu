//! ops(f32, f16, bf16) Softmax SoftmaxGrad LogSoftmax LogSoftmaxGrad
// Operators along the last axis: one team per row, in f32.
#include <algorithm>

#include "device/exponential_sum.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::softmax_kernels {
namespace {

// y = e^(x - top) / sum; kLog: x - top - log(sum)
template <unsigned kTeam, int kWidth, bool kLog, class T>
__global__ void softmax_kernel(const T* __restrict__ x, T* __restrict__ y, uint64_t rows,
                               uint64_t n) {
  const uint64_t row = team_row<kTeam>();
  if (row >= rows) {
    return;
  }
  x += row * n;
  y += row * n;
  const ExponentialSum total = exponential_sum<kTeam, kWidth>(x, n);
  const float scale = kLog ? logf(total.sum) : 1 / total.sum;
  for (uint64_t i = team_lane<kTeam>() * kWidth; i < n; i += kTeam * kWidth) {
    float v[kWidth];
    read_some(x + i, v);
    for (int k = 0; k < kWidth; ++k) {
      v[k] = kLog ? v[k] - total.top - scale : expf(v[k] - total.top) * scale;
    }
    write_some(y + i, v);
  }
}

// dx = y (dy - sum of y dy); kLog: dy - e^y sum of dy
template <unsigned kTeam, int kWidth, bool kLog, class T>
__global__ void softmax_grad_kernel(const T* __restrict__ y, const T* __restrict__ dy,
                                    T* __restrict__ dx, uint64_t rows, uint64_t n) {
  const uint64_t row = team_row<kTeam>();
  if (row >= rows) {
    return;
  }
  y += row * n;
  dy += row * n;
  dx += row * n;
  float sum = 0;
  for (uint64_t i = team_lane<kTeam>() * kWidth; i < n; i += kTeam * kWidth) {
    float u[kWidth], v[kWidth];
    read_some(y + i, u);
    read_some(dy + i, v);
    for (int k = 0; k < kWidth; ++k) {
      sum += kLog ? v[k] : u[k] * v[k];
    }
  }
  sum = team_sum<kTeam>(sum);
  for (uint64_t i = team_lane<kTeam>() * kWidth; i < n; i += kTeam * kWidth) {
    float u[kWidth], v[kWidth];
    read_some(y + i, u);
    read_some(dy + i, v);
    for (int k = 0; k < kWidth; ++k) {
      v[k] = kLog ? v[k] - expf(u[k]) * sum : u[k] * (v[k] - sum);
    }
    write_some(dx + i, v);
  }
}

// Processes four elements at a time if all operands are aligned, only for f32.
template <class T>
bool takes_four(const Launch& l, uint64_t n) {
  return std::is_same_v<T, float> && n % 4 == 0 &&
         aligned16(l.in(0), l.in(l.inputs() - 1), l.out(0));
}
template <class T>
constexpr int kMost = std::is_same_v<T, float> ? 4 : 1;

template <class T, bool kLog>
void softmax(Launch& l) {
  const Shape& x = l.in_shape(0);
  const auto n = static_cast<uint64_t>(x.back());
  launch_rows(
      l, "softmax", rows_of(x), n, takes_four<T>(l, n),
      [](auto team, auto width) {
        return softmax_kernel<team(), std::min<int>(width(), kMost<T>), kLog, T>;
      },
      l.in_as<T>(0), l.out_as<T>(0), rows_of(x), n);
}

template <class T, bool kLog>
void softmax_grad(Launch& l) {
  const Shape& y = l.in_shape(0);
  const auto n = static_cast<uint64_t>(y.back());
  launch_rows(
      l, "softmax gradient", rows_of(y), n, takes_four<T>(l, n),
      [](auto team, auto width) {
        return softmax_grad_kernel<team(), std::min<int>(width(), kMost<T>), kLog, T>;
      },
      l.in_as<T>(0), l.in_as<T>(1), l.out_as<T>(0), rows_of(y), n);
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(softmax, .run = softmax<T, false>);
BOWLINE_KERNELS_OF_FLOATS(softmax_grad, .run = softmax_grad<T, false>);
BOWLINE_KERNELS_OF_FLOATS(log_softmax, .run = softmax<T, true>);
BOWLINE_KERNELS_OF_FLOATS(log_softmax_grad, .run = softmax_grad<T, true>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::softmax_kernels
