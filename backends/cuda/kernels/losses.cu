//! ops(f32, f16, bf16) MeanSquaredError BinaryCrossEntropy Huber
//! ops(f32, f16, bf16) MeanSquaredErrorGrad BinaryCrossEntropyGrad HuberGrad
// Elementwise losses and their gradients, four elements per thread. For the sum of losses, several
// blocks compute one partial sum each, and a single block adds the partial sums.
#include <algorithm>

#include "core/losses.h"
#include "device/begin.cuh"
#include "device/formulas.cuh"
#include "device/rows.cuh"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::formulas {

#define LOSS(name) __device__ inline F name##_loss(F x, F t, [[maybe_unused]] F p)
#define SLOPE(name) __device__ inline F name##_slope(F x, F t, [[maybe_unused]] F p)
#include "ops/formulas/losses.inc"
#undef LOSS
#undef SLOPE

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::formulas

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::losses_kernels {
namespace {

// Maximum number of parts of a sum. The number depends only on the length of the sum.
constexpr unsigned kMostParts = kRowThreads;
constexpr uint64_t kPart = 4096;

struct Call : LossCall {
  __device__ float value(float x, float t) const {
    switch (loss) {
      case ElementLoss::huber:
        return formulas::huber_loss(x, t, p);
      case ElementLoss::binary_cross_entropy:
        return formulas::binary_cross_entropy_loss(x, t, p);
      default:
        return formulas::mean_squared_error_loss(x, t, p);
    }
  }
  __device__ float slope(float x, float t) const {
    switch (loss) {
      case ElementLoss::huber:
        return formulas::huber_slope(x, t, p);
      case ElementLoss::binary_cross_entropy:
        return formulas::binary_cross_entropy_slope(x, t, p);
      default:
        return formulas::mean_squared_error_slope(x, t, p);
    }
  }
};

template <class X>
__global__ void each_loss_kernel(Call call, const X* x, const X* target, float* y, uint64_t n) {
  begin_kernel();
  for_elements(n, [&](uint64_t i) { y[i] = call.value(read(x + i), read(target + i)); });
}

template <class X>
__global__ void part_loss_kernel(Call call, const X* x, const X* target, float* parts, uint64_t n) {
  begin_kernel();
  float sum = 0;
  for (uint64_t i = uint64_t{blockIdx.x} * kRowThreads + threadIdx.x; i < n;
       i += uint64_t{gridDim.x} * kRowThreads) {
    sum += call.value(read(x + i), read(target + i));
  }
  sum = team_sum<kRowThreads>(sum);
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = sum;
  }
}

__global__ void sum_of_parts_kernel(const float* parts, unsigned count, float* loss,
                                    float divisor) {
  begin_kernel();
  const float sum = team_sum<kRowThreads>(threadIdx.x < count ? parts[threadIdx.x] : 0.0f);
  if (threadIdx.x == 0) {
    *loss = sum / divisor;
  }
}

// dx may overwrite x or the target.
template <class X>
__global__ void loss_grad_kernel(Call call, const X* x, const X* target, const float* dloss,
                                 bool each, float divisor, X* dx, uint64_t n) {
  begin_kernel();
  for_elements(n, [&](uint64_t i) {
    const float d = dloss[each ? i : 0] / divisor;
    write(dx + i, call.slope(read(x + i), read(target + i)) * d);
  });
}

uint64_t loss_workspace(const NodeView&) { return kMostParts * sizeof(float); }

template <class X>
void loss(Launch& l) {
  const Call call = {loss_call_of(l.record())};
  const int64_t elements = l.in_shape(0).elements();
  const auto n = static_cast<uint64_t>(elements);
  if (call.reduction == Reduction::none) {
    l.launch("loss of elements", each_loss_kernel<X>, element_blocks(n), kElementThreads, call,
             l.in_as<X>(0), l.in_as<X>(1), l.out(0), n);
    return;
  }
  const auto parts = static_cast<unsigned>(std::clamp<uint64_t>(n / kPart, 1, kMostParts));
  l.launch("parts of a loss", part_loss_kernel<X>, parts, kRowThreads, call, l.in_as<X>(0),
           l.in_as<X>(1), l.workspace(), n);
  l.launch("loss", sum_of_parts_kernel, 1, kRowThreads, l.workspace(), parts, l.out(0),
           static_cast<float>(call.divisor(elements)));
}

template <class X>
void loss_grad(Launch& l) {
  const Call call = {loss_call_of(l.record())};
  const int64_t elements = l.in_shape(0).elements();
  const auto n = static_cast<uint64_t>(elements);
  l.launch("loss gradient", loss_grad_kernel<X>, element_blocks(n), kElementThreads, call,
           l.in_as<X>(0), l.in_as<X>(1), l.in(2), call.reduction == Reduction::none,
           static_cast<float>(call.divisor(elements)), l.out_as<X>(0), n);
}

}  // namespace

#define BOWLINE_LOSS(stem)                                                      \
  BOWLINE_KERNELS_OF_FLOATS(stem, .run = loss<T>, .workspace = loss_workspace); \
  BOWLINE_KERNELS_OF_FLOATS(stem##_grad, .run = loss_grad<T>)

BOWLINE_LOSS(mean_squared_error);
BOWLINE_LOSS(binary_cross_entropy);
BOWLINE_LOSS(huber);
#undef BOWLINE_LOSS

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::losses_kernels
