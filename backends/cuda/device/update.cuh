// Shared by all kernels that update weights.
#pragma once

#include "kernel.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// True if weights must not change: after an error, or if the gradient is not finite.
__device__ inline bool halted(const device::StepHead* head, const uint32_t* non_finite) {
  return head->error != 0 || *non_finite != 0;
}

// Sets weights_non_finite if this thread wrote a non-finite weight.
__device__ inline void report(bool finite, uint32_t* weights_non_finite) {
  if (!finite) {
    *weights_non_finite = 1;
  }
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
