// Loops over tensors whose operands have their own strides: rows of the last axis.
#pragma once

#include <algorithm>

#include "core/loops.h"
#include "kernel.h"

namespace bowline::detail::cpu {

// The rows of a loop: its last axis, and the stride of operand k within it.
template <int N>
int64_t row_length(const Loops<N>& loops) {
  return loops.rank == 0 ? 1 : loops.sizes[loops.rank - 1];
}
template <int N>
int64_t row_step(const Loops<N>& loops, int k) {
  return loops.rank == 0 ? 0 : loops.strides[k][loops.rank - 1];
}

// Calls f(i, n, at) for the rows of the loop, or for parts of them: n elements from element i of
// the loop on. Element i of operand k is at[k]. Threads share the parts, with about kGrain elements
// per task.
template <int N, class F>
void for_rows(Threads& threads, const Loops<N>& loops, F&& f) {
  if (loops.elements() == 0) {
    return;
  }
  const int64_t length = row_length(loops);
  const int64_t parts = (length + kGrain - 1) / kGrain;
  const int64_t rows = static_cast<int64_t>(loops.elements()) / length;
  parallel_rows(threads, rows * parts, std::min(length, kGrain), [&](int64_t part) {
    const int64_t first = part % parts * kGrain;
    const int64_t i = part / parts * length + first;
    int64_t at[N];
    loops.offsets(static_cast<uint64_t>(i), at);
    f(i, std::min(kGrain, length - first), at);
  });
}

}  // namespace bowline::detail::cpu
