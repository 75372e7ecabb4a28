// Finds the block that finishes last, so that it can add the parts of all blocks without another
// launch.
//
// The caller must read the parts in a fixed order; then the result does not depend on which block
// is last. (CUDA C++ Programming Guide, "Memory Fence Functions", sums with a counter in this way.)
#pragma once

#include "kernel.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// Returns true, in all threads, only in the last of `blocks` blocks that call this with `counter`.
// That block sees everything that the others wrote before their calls. All threads of a block must
// call it. The counter is 0 before and afterwards (Launch::block_counters).
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
