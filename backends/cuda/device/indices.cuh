// Indices along an axis: those below zero count from its end.
#pragma once

#include "device/elements.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// The element that an index means, -1 of one outside the axis.
__device__ inline int64_t element_of(int32_t index, int64_t n) {
  const int64_t at = index < 0 ? index + n : index;
  return at >= 0 && at < n ? at : -1;
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
