// Runs the threads of a grid on the host and checks the rules of CUDA's launch model.
//
// The threads of a block are fibers of one host thread. Each fiber runs until it ends or waits at a
// barrier of the block or at a collective of its warp (shuffle, vote, warp barrier). Blocks run one
// after the other, so a kernel must not wait for another block. The blocks of a cooperative launch
// run by turns: each until all its threads wait. Every second launch starts threads and blocks in
// reverse order: if a result depends on an order that CUDA does not promise, two runs give
// different bits.
//
// These errors end the grid, because a GPU leaves their result undefined:
//   - a barrier that some threads of the block never reach, because they ended or wait at a
//     collective
//   - a collective whose mask names a lane that ended, does not exist or waits elsewhere, or omits
//     the caller
//   - a shuffle that reads a lane outside its mask
//   - a read of shared memory before the block wrote it
//   - two threads that access one element of shared memory without a barrier in between, if one of
//     them writes (Shared<T>)
//   - a wait for a counter that no block will reach
//   - a thread of the backend that does not wait for the launch before (require_wait) first: before
//     it ends, lets the next launch start, or accesses device memory in a way that is seen here
//   - two blocks that access one element of device memory (device/grid_barrier.cuh, Exchanged), if
//     one of them writes and no release and acquire of a counter order the accesses. Static shared
//     memory serves all blocks of a cooperative launch in turn: what a block wrote before it waits
//     for others counts as not written.
#pragma once

#include <functional>
#include <string>

#include "emu/types.h"

namespace bowline::detail::cuda_emu {

constexpr unsigned kWarp = 32;

// The line of a call, as a default argument. clang 14 with GCC's library lacks
// std::source_location.
struct Where {
  unsigned number = 0;
  unsigned line() const { return number; }
  static constexpr Where current(unsigned line = __builtin_LINE()) { return {line}; }
};

// The position of a thread.
struct Thread {
  uint3 index;  // threadIdx
  unsigned linear;
  unsigned lane;
  unsigned warp;
};

// The running block and its running thread.
struct Running {
  const Thread* thread = nullptr;
  uint3 block_index;
  dim3 block_dim;
  dim3 grid_dim;
  uint64_t block_number = 0;   // counts all blocks of the process
  uint32_t barriers = 0;       // passed by the block
  uint32_t warp_barriers = 0;  // passed by the warp of the thread, for all lanes together
  unsigned shared_bytes = 0;   // dynamic shared memory of a block
  unsigned place = 0;          // of the block among the blocks that run by turns
};
extern Running running;

// Runs `kernel` once per thread of the grid, with this much dynamic shared memory per block.
// `together`: blocks may wait for one another. Returns an error message, or an empty string.
std::string run_grid(dim3 grid, dim3 block, const std::function<void()>& kernel,
                     unsigned shared_bytes = 0, bool together = false);

// Ends the running grid with an error. Does not return.
[[noreturn]] void fail(std::string what);

// A barrier of the block.
void block_barrier(Where where);

enum class Collective : uint8_t { shuffle, vote, barrier, matrix };
// Waits until all lanes of the mask have arrived, and returns the value of lane `source`.
uint64_t warp_exchange(Collective kind, uint32_t mask, uint64_t value, unsigned source,
                       Where where);
// The lanes of the mask whose value is not zero.
uint32_t warp_vote(uint32_t mask, bool value, Where where);
// An instruction that all 32 lanes of the warp execute: runs `together` once, with the values of
// the lanes.
using Together = void (*)(const uint64_t (&values)[kWarp]);
void warp_together(Together together, uint64_t value, Where where);

// From here on, the running thread must wait for the launch before, because its block may start
// while that one still runs.
void require_wait();
// The instructions of device/begin.cuh.
void wait_for_prerequisites();
void launch_dependents();
// Fails if the running thread still has to wait.
void check_waited();

// Adds to a counter, as a release: what the block did before its last barrier is ordered before the
// add.
void add_release(uint32_t* counter, uint32_t value);
// Waits until the counter has reached a number, as an acquire: after the next barrier of the block,
// all its threads are ordered after the adds. The counter may wrap around.
void wait_acquire(const uint32_t* counter, uint32_t target, Where where = Where::current());
// An access to an element that blocks of the grid exchange.
void exchange_read(const void* at);
void exchange_write(const void* at);

}  // namespace bowline::detail::cuda_emu
