// Rows that are written into a state, such as a KV cache.
#pragma once

#include "device/codes.cuh"
#include "device/rows.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// True if `count` rows from `position` on fit into `size` rows. Otherwise the thread for which
// `reports` is set reports the last row as an out-of-range index.
__device__ inline bool rows_fit(uint64_t size, uint64_t position, uint64_t count, bool reports,
                                device::StepHead* head, uint32_t node) {
  if (position + count > size && reports) {
    const uint64_t last = position + (count > 0 ? count : 1) - 1;
    bad_index(head, node, last < INT32_MAX ? static_cast<int32_t>(last) : INT32_MAX);
  }
  return position + count <= size;
}

// Quantizes block `number` of row `to` of a state (Encoding::takes_rows). value(column) is the
// element of a column. All lanes of a warp must call it.
template <class F>
__device__ void write_block(const Codes& y, int64_t to, uint32_t number, F&& value) {
  const uint32_t first = number * y.block;
  const uint32_t end = min(first + y.block, static_cast<uint32_t>(y.columns));
  float most = 0;
  float odd = 0;  // NaN if a value is not finite
  for (uint32_t i = first + threadIdx.x % kLanes; i < end; i += kLanes) {
    const float v = value(i);
    most = fmaxf(most, fabsf(v));
    odd += v * 0.0f;
  }
  most = reduce_lanes(
      most, [](float a, float b) { return fmaxf(a, b); }, kLanes);
  odd = reduce_lanes(
      odd, [](float a, float b) { return a + b; }, kLanes);
  const float exact = (most + odd) / 127;
  const float scale = exact < INFINITY ? exact : 0.0f;
  auto* const codes = const_cast<uint8_t*>(y.codes) + to * y.row_bytes + number * y.block_bytes;
  for (uint32_t i = first + threadIdx.x % kLanes; i < end; i += kLanes) {
    const float code = scale == 0 ? 0.0f : fminf(fmaxf(rintf(value(i) / scale), -128.0f), 127.0f);
    codes[i - first] = static_cast<uint8_t>(static_cast<int8_t>(code));
  }
  if (threadIdx.x % kLanes == 0) {
    *static_cast<float*>(const_cast<void*>(y.scale_at(to, number))) = scale;
  }
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
