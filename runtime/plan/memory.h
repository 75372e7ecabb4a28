// Arena offsets from lifetimes.
//
// Source  Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020:
//         greedy by size, lowest best-fitting gap. Three orders are tried and the smallest arena is
//         kept.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "bowline.h"

namespace bowline::detail::plan {

// A block that lives while positions [first, last] are executed. `offset` is the result. For a
// pinned block the caller sets it.
struct MemoryItem {
  uint64_t bytes = 0;
  uint32_t first = 0;
  uint32_t last = 0;
  uint64_t offset = 0;
  bool pinned = false;
};

struct MemoryLayout {
  uint64_t bytes = 0;        // of the arena
  uint64_t lower_bound = 0;  // the largest sum of bytes that live at one position
};

// Items that live at the same time do not overlap, provided the pinned items do not overlap each
// other. Offsets and sizes are multiples of `alignment`. Takes n log n steps, and up to a fixed
// number more for the orders that need n squared: where those do not do, the order of time stands
// alone.
// Errors  out_of_memory: the items together have more than 2^64 - 1 bytes.
Result<MemoryLayout> place(std::span<MemoryItem> items, uint64_t alignment);

}  // namespace bowline::detail::plan
