// Adds the results of the parts of k of a product, in order.
#pragma once

#include "device/elements.cuh"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// Four results per thread.
template <class T>
__global__ void add_splits_kernel(const float* parts, unsigned splits, const T* bias, int n, T* y,
                                  uint64_t count, bool adds) {
  for_elements(count, [&](uint64_t i) {
    float sum = parts[i];
    for (unsigned s = 1; s < splits; ++s) {
      sum += parts[s * count + i];
    }
    if (adds) {
      sum += read(y + i);
    }
    write(y + i, bias == nullptr ? sum : sum + read(bias + i % static_cast<uint64_t>(n)));
  });
}

// parts [splits, count] become y [count], rows of n; `adds`: they are added to y.
template <class T>
void add_splits(Launch& l, const float* parts, unsigned splits, const T* bias, int64_t n, T* y,
                uint64_t count, bool adds) {
  l.launch("add splits", add_splits_kernel<T>, element_blocks(count), kElementThreads, parts,
           splits, bias, static_cast<int>(n), y, count, adds);
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
