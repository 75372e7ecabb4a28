// Runs the threads of a grid on the host: the launch model of CUDA, checked.
//
// The threads of a block are fibers of one host thread. Each runs until it ends or waits: at a
// barrier of the block, or at a collective of its warp (shuffle, vote, warp barrier). Blocks run
// one after the other, so a kernel must not wait for another block. Threads and blocks of every
// second launch start in reverse order: what depends on an order that CUDA does not promise gives
// other bits in the second of two runs.
//
// What ends the grid with an error, as it is undefined on a GPU:
//   - a barrier that some threads of the block never reach, because they ended or wait at a
//     collective
//   - a collective whose mask names a lane that ended, does not exist or waits elsewhere, or omits
//     the caller
//   - a shuffle that reads a lane outside its mask
//   - shared memory read before the block wrote it
//   - two threads at one element of shared memory, one of them writing, with no barrier between
//     (Shared<T>)
#pragma once

#include <functional>
#include <string>

#include "emu/types.h"

namespace bowline::detail::cuda_emu {

constexpr unsigned kWarp = 32;

// The line of a call, as a default argument: std::source_location, which clang 14 does not have
// with GCC's library.
struct Where {
  unsigned number = 0;
  unsigned line() const { return number; }
  static constexpr Where current(unsigned line = __builtin_LINE()) { return {line}; }
};

// What a thread knows about itself.
struct Thread {
  uint3 index;  // threadIdx
  unsigned linear;
  unsigned lane;
  unsigned warp;
};

// The block that runs, and its thread that runs.
struct Running {
  const Thread* thread = nullptr;
  uint3 block_index;
  dim3 block_dim;
  dim3 grid_dim;
  uint64_t block_number = 0;   // counts all blocks of the process
  uint32_t barriers = 0;       // that the block has passed
  uint32_t warp_barriers = 0;  // that the warp of the thread has passed, all lanes together
};
extern Running running;

// Runs `kernel` once per thread of the grid. Returns what went wrong, or nothing.
std::string run_grid(dim3 grid, dim3 block, const std::function<void()>& kernel);

// Ends the running grid with an error. Does not return.
[[noreturn]] void fail(std::string what);

// A barrier of the block.
void block_barrier(Where where);

enum class Collective : uint8_t { shuffle, vote, barrier };
// Waits until all lanes of the mask have come, and returns what lane `source` of them brought.
uint64_t warp_exchange(Collective kind, uint32_t mask, uint64_t value, unsigned source,
                       Where where);
// The lanes of the mask whose value is not zero.
uint32_t warp_vote(uint32_t mask, bool value, Where where);

}  // namespace bowline::detail::cuda_emu
