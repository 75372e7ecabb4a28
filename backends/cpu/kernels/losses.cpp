//! ops(f32, f16, bf16) MeanSquaredError BinaryCrossEntropy Huber
//! ops(f32, f16, bf16) MeanSquaredErrorGrad BinaryCrossEntropyGrad HuberGrad
// Elementwise losses. Blocks of a fixed size are summed and added in ascending order. Other dtypes
// are converted to f32 in blocks.
#include "compute/losses.h"

#include <algorithm>

#include "compute/convert.h"
#include "core/element_types.h"
#include "kernel.h"

namespace bowline::detail::cpu::losses_kernels {
namespace {

constexpr int64_t kBlock = 2048;

// Elements [begin, begin + n) of an operand as f32. f32 operands are not copied.
template <class T>
const float* wide(const Arg& x, int64_t begin, size_t n, [[maybe_unused]] float* block) {
  if constexpr (std::same_as<T, float>) {
    return x.f32() + begin;
  } else {
    widen(n, x.as<const T>() + begin, block);
    return block;
  }
}

// Calls f(begin, n, x, target) for each block.
template <class T, class F>
void for_blocks(const Launch& l, F&& f) {
  const int64_t elements = l.in[0].elements();
  parallel_blocks(l.threads, elements, kBlock, [&](int64_t begin, int64_t end) {
    alignas(64) float x[kBlock];
    alignas(64) float t[kBlock];
    const auto n = static_cast<size_t>(end - begin);
    f(begin, n, wide<T>(l.in[0], begin, n, x), wide<T>(l.in[1], begin, n, t));
  });
}

uint64_t workspace(const device::NodeQuery& node, const Threads&) {
  return static_cast<uint64_t>((node.inputs[0].shape.elements() + kBlock - 1) / kBlock) *
         sizeof(float);
}

template <class T>
void run(const Launch& l) {
  const LossCall call = loss_call_of(l.record);
  float* const loss = l.out[0].f32();
  if (call.reduction == Reduction::none) {
    for_blocks<T>(l, [&](int64_t begin, size_t n, const float* x, const float* t) {
      loss_of(call, n, x, t, loss + begin);
    });
    return;
  }
  auto* const sums = reinterpret_cast<float*>(l.workspace);
  for_blocks<T>(l, [&](int64_t begin, size_t n, const float* x, const float* t) {
    sums[begin / kBlock] = sum_of_losses(call, n, x, t);
  });
  const int64_t elements = l.in[0].elements();
  double sum = 0;
  for (int64_t block = 0; block * kBlock < elements; ++block) {
    sum += static_cast<double>(sums[block]);
  }
  *loss = static_cast<float>(sum / call.divisor(elements));
}

template <class T>
void run_grad(const Launch& l) {
  const LossCall call = loss_call_of(l.record);
  const float* const dloss = l.in[2].f32();
  const auto count = static_cast<float>(call.divisor(l.in[0].elements()));
  for_blocks<T>(l, [&](int64_t begin, size_t n, const float* x, const float* t) {
    alignas(64) float block[kBlock];
    float* const dx = std::same_as<T, float> ? l.out[0].f32() + begin : block;
    if (call.reduction == Reduction::none) {
      loss_slope(call, n, x, t, dloss + begin, dx);
    } else {
      loss_slope(call, n, x, t, *dloss / count, dx);
    }
    if constexpr (!std::same_as<T, float>) {
      narrow(n, block, l.out[0].as<T>() + begin);
    }
  });
}

}  // namespace

#define BOWLINE_LOSS(stem)                                                \
  BOWLINE_KERNELS_OF_FLOATS(stem, .run = run<T>, .workspace = workspace); \
  BOWLINE_KERNELS_OF_FLOATS(stem##_grad, .run = run_grad<T>)

BOWLINE_LOSS(mean_squared_error);
BOWLINE_LOSS(binary_cross_entropy);
BOWLINE_LOSS(huber);
#undef BOWLINE_LOSS

}  // namespace bowline::detail::cpu::losses_kernels
