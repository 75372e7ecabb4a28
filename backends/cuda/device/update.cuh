// What all kernels that update weights do.
#pragma once

#include "kernel.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// Nothing is updated after an error, or with a gradient that is not finite.
__device__ inline bool halted(const device::StepHead* head, const uint32_t* non_finite) {
  return head->error != 0 || *non_finite != 0;
}

// A weight that is not finite is reported by every thread that wrote one.
__device__ inline void report(bool finite, uint32_t* weights_non_finite) {
  if (!finite) {
    *weights_non_finite = 1;
  }
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
