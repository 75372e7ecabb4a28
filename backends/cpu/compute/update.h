// Optimizers that are defined by a formula (runtime/ops/formulas/optimizers), on one f32 array.
//
// Threads   uses the pool for larger arrays; the bits do not depend on the number of threads;
//           nothing is allocated.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <span>

#include "core/optimizers.h"
#include "threads.h"

namespace bowline::detail::cpu {

// The arguments that all arrays of a node share.
struct Update {
  Op op;
  std::span<const float> numbers;   // UpdateOperands::numbers
  std::span<const uint32_t> words;  // the per-step scalars that the operator reads, as bits
  float grad_scale;                 // the gradient is multiplied by this value first
};

// A missing state is null. Returns true if every new w is finite.
using States = std::array<float*, kMostOptimizerStates>;
bool update(Threads& threads, const Update& call, size_t n, const float* g, float* w,
            const States& states);

// Calls block(first, size) for blocks of 0 .. n - 1. A call returns 0 if all values of the block
// are finite. Returns true if all calls return 0.
template <class F>
bool all_finite(Threads& threads, size_t n, F&& block) {
  constexpr size_t kBlock = 8192;
  std::atomic<bool> finite = true;
  threads.parallel_for((n + kBlock - 1) / kBlock, [&](size_t task, size_t) {
    const size_t first = task * kBlock;
    if (block(first, std::min(kBlock, n - first)) != 0) {
      finite = false;
    }
  });
  return finite;
}

}  // namespace bowline::detail::cpu
