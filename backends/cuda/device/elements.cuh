// Elementwise kernels: assigns elements to threads.
#pragma once

#include "kernel.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

constexpr unsigned kElementThreads = 256;
constexpr unsigned kElementsEach = 4;

// Number of blocks for n elements, with `each` elements per thread.
inline dim3 element_blocks(uint64_t n, unsigned each = kElementsEach) {
  return blocks_for(n, kElementThreads, each);
}

// Calls f(i) for the kEach elements of this thread, or many(i) for all of them at once if `packs`
// is set.
template <unsigned kEach = kElementsEach, class F, class Many>
__device__ void for_elements(uint64_t n, bool packs, F&& f, Many&& many) {
  const uint64_t thread = uint64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  const uint64_t first = thread * kEach;
  if (packs && first + kEach <= n) {
    many(first);
    return;
  }
  for (uint64_t i = first; i < n && i < first + kEach; ++i) {
    f(i);
  }
}

template <unsigned kEach = kElementsEach, class F>
__device__ void for_elements(uint64_t n, F&& f) {
  for_elements<kEach>(n, false, f, [](uint64_t) {});
}

// True if 16-byte accesses are legal from each address.
template <class... P>
bool aligned16(const P*... addresses) {
  return (... && (reinterpret_cast<uintptr_t>(addresses) % 16 == 0));
}

// True if the addresses differ by multiples of 16 bytes.
template <class... P>
bool aligned_alike(const void* first, const P*... others) {
  return (... &&
          ((reinterpret_cast<uintptr_t>(first) - reinterpret_cast<uintptr_t>(others)) % 16 == 0));
}

__device__ inline float4 load4(const float* at) { return *reinterpret_cast<const float4*>(at); }
__device__ inline void store4(float* at, float4 v) { *reinterpret_cast<float4*>(at) = v; }

// Reports an out-of-range index. The first node that reports is named, because gradient nodes read
// the same indices again. The caller has already made the access harmless.
__device__ inline void bad_index(device::StepHead* head, uint32_t node, int32_t value) {
  if (head->error == 0) {
    head->error = static_cast<uint32_t>(device::StepError::index_out_of_range);
    head->error_node = node;
    head->error_value = value;
  }
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
