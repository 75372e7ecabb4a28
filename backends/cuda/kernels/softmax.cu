//! ops Softmax SoftmaxGrad
// Along the last axis, a team per row.
#include "device/exponential_sum.cuh"

namespace bowline::BOWLINE_CUDA_NAMESPACE {
namespace {

template <unsigned kTeam, int kWidth>
__global__ void softmax_kernel(const float* __restrict__ x, float* __restrict__ y, uint64_t rows,
                               uint64_t n) {
  const uint64_t row = team_row<kTeam>();
  if (row >= rows) {
    return;
  }
  x += row * n;
  y += row * n;
  const ExponentialSum total = exponential_sum<kTeam, kWidth>(x, n);
  const float inverse = 1 / total.sum;
  for (uint64_t i = team_lane<kTeam>() * kWidth; i < n; i += kTeam * kWidth) {
    float v[kWidth];
    load(x + i, v);
    for (int k = 0; k < kWidth; ++k) {
      v[k] = expf(v[k] - total.top) * inverse;
    }
    store(y + i, v);
  }
}

template <unsigned kTeam, int kWidth>
__global__ void softmax_grad_kernel(const float* __restrict__ y, const float* __restrict__ dy,
                                    float* __restrict__ dx, uint64_t rows, uint64_t n) {
  const uint64_t row = team_row<kTeam>();
  if (row >= rows) {
    return;
  }
  y += row * n;
  dy += row * n;
  dx += row * n;
  float dot = 0;
  for (uint64_t i = team_lane<kTeam>() * kWidth; i < n; i += kTeam * kWidth) {
    float u[kWidth], v[kWidth];
    load(y + i, u);
    load(dy + i, v);
    for (int k = 0; k < kWidth; ++k) {
      dot += u[k] * v[k];
    }
  }
  dot = team_sum<kTeam>(dot);
  for (uint64_t i = team_lane<kTeam>() * kWidth; i < n; i += kTeam * kWidth) {
    float u[kWidth], v[kWidth];
    load(y + i, u);
    load(dy + i, v);
    for (int k = 0; k < kWidth; ++k) {
      v[k] = u[k] * (v[k] - dot);
    }
    store(dx + i, v);
  }
}

void softmax(Launch& l) {
  const Shape& x = l.in_shape(0);
  const auto n = static_cast<uint64_t>(x.back());
  launch_rows(
      l, "softmax", rows_of(x), n, n % 4 == 0 && aligned16(l.in(0), l.out(0)),
      [](auto team, auto width) { return softmax_kernel<team(), width()>; }, l.in(0), l.out(0),
      rows_of(x), n);
}

void softmax_grad(Launch& l) {
  const Shape& y = l.in_shape(0);
  const auto n = static_cast<uint64_t>(y.back());
  launch_rows(
      l, "softmax gradient", rows_of(y), n, n % 4 == 0 && aligned16(l.in(0), l.in(1), l.out(0)),
      [](auto team, auto width) { return softmax_grad_kernel<team(), width()>; }, l.in(0), l.in(1),
      l.out(0), rows_of(y), n);
}

}  // namespace

BOWLINE_CUDA_KERNEL(softmax, .run = softmax);
BOWLINE_CUDA_KERNEL(softmax_grad, .run = softmax_grad);

}  // namespace bowline::BOWLINE_CUDA_NAMESPACE
