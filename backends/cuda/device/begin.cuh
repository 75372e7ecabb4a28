// How a kernel begins: programmatic dependent launch (CUDA C++ Programming Guide, "Programmatic
// Dependent Launch and Synchronization").
//
// From sm_90 on, the blocks of a launch can start while the launch before it still runs
// (Blocks::early). Every kernel waits for the launch before it accesses memory, prefetches
// excepted, and only then lets the next launch start. So when a launch starts, at most the launch
// directly before is still running, and that is the one it waits for.
#pragma once

#include "kernel.h"
#ifndef BOWLINE_CUDA_EMULATED
#include "ptx.cuh"
#endif

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// The first statement of every kernel: all threads wait until the launch before has ended, and then
// see what it wrote. `before_wait` runs first. It may compute addresses from the arguments of the
// kernel and prefetch them. Every write of another launch passes the L2 cache, so a prefetch into
// it never makes a value stale.
template <class F>
__device__ void begin_kernel(F&& before_wait) {
  before_wait();
  wait_for_prerequisites();
  launch_dependents();
}
__device__ inline void begin_kernel() {
  begin_kernel([] {});
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
