// Indices along an axis. Negative indices count from the end.
#pragma once

#include "device/elements.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// The element number of an index, or -1 if the index is out of range.
__device__ inline int64_t element_of(int32_t index, int64_t n) {
  const int64_t at = index < 0 ? index + n : index;
  return at >= 0 && at < n ? at : -1;
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
