// Adds the results of the parts of k of a product, in order.
#pragma once

#include "device/results.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// Four results per thread.
template <class T>
__global__ void add_splits_kernel(const float* parts, unsigned splits, Results to, int n,
                                  uint64_t count) {
  for_elements(count, [&](uint64_t i) {
    float sum = parts[i];
    for (unsigned s = 1; s < splits; ++s) {
      sum += parts[s * count + i];
    }
    to.put<T>(sum, static_cast<int64_t>(i), static_cast<int>(i % static_cast<uint64_t>(n)));
  });
}

// parts [splits, count] become results [count], in rows of n.
template <class T>
void add_splits(Launch& l, const float* parts, unsigned splits, const Results& to, int64_t n,
                uint64_t count) {
  l.launch("add splits", add_splits_kernel<T>, element_blocks(count), kElementThreads, parts,
           splits, to, static_cast<int>(n), count);
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
