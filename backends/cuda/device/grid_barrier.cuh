// A barrier of all blocks of a grid, and the memory through which they exchange data.
//
// The kernel needs Launch::launch_together. The barrier is a counter in device memory that each
// block increments. Release and acquire order the accesses to memory (PTX ISA, "Memory Consistency
// Model").
#pragma once

#include "device/storage.cuh"
#include "device/tensor_core.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

class GridBarrier {
 public:
  // `counters` are two numbers of Launch::block_counters.
  __device__ explicit GridBarrier(uint32_t* counters) : counters_(counters) {}

  // All threads of all blocks wait for one another, and then see what the others wrote before.
  __device__ void wait() {
    __syncthreads();
    reached_ += gridDim.x;
    if (threadIdx.x == 0) {
      add_release(counters_, 1);
      wait_acquire(counters_, reached_);
    }
    __syncthreads();
  }
  // After the last wait, in all blocks: the last one sets the counters to 0.
  __device__ void end() const {
    if (threadIdx.x == 0 && reached_ > 0 &&
        atomicInc(counters_ + 1, gridDim.x - 1) == gridDim.x - 1) {
      *counters_ = 0;
    }
  }

 private:
  uint32_t* counters_;
  uint32_t reached_ = 0;  // the counter after the last barrier
};

// f32 elements in device memory that one block writes and others read. The emulation checks that a
// barrier orders the accesses of different blocks.
class Exchanged {
 public:
  Exchanged() = default;
  explicit Exchanged(float* at) : at_(at) {}
  // kWidth elements that can be accessed at once (read_some).
  template <int kWidth>
  __device__ void read_some(uint64_t i, float (&v)[kWidth]) const {
    for (int k = 0; k < kWidth; ++k) {
      exchange_read(at_ + i + k);
    }
    BOWLINE_CUDA_NAMESPACE::read_some(at_ + i, v);
  }
  __device__ float read(uint64_t i) const {
    exchange_read(at_ + i);
    return at_[i];
  }
  __device__ void write(uint64_t i, float x) const {
    exchange_write(at_ + i);
    at_[i] = x;
  }

 private:
  float* at_ = nullptr;
};

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
