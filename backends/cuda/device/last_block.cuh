// Lets the last of several blocks finish what they have begun together, without another launch.
//
// Which block is last does not change a result: it reads what all of them have written, in a fixed
// order. (CUDA C++ Programming Guide, "Memory Fence Functions", sums with a counter in this way.)
#pragma once

#include "kernel.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// True in all threads of the last of `blocks` blocks that call it with this counter. That block
// sees everything that the others wrote before their calls. All threads of a block must call it.
// The counter is 0 before and afterwards (Launch::block_counters).
__device__ inline bool arrives_last(uint32_t* counter, unsigned blocks) {
  __shared__ Shared<unsigned[1]> arrived;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    arrived[0] = atomicInc(counter, blocks - 1);  // the last call sets it to 0
  }
  __syncthreads();
  const bool is_last = arrived[0] == blocks - 1;
  __syncthreads();  // before another call
  __threadfence();
  return is_last;
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
