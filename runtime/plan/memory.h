// Assigns arena offsets to blocks with known lifetimes.
//
// Source  Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020:
//         greedy by size, lowest best-fitting gap. place() tries three orders and keeps the
//         smallest arena.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "bowline.h"
#include "plan/arena.h"

namespace bowline::detail::plan {

// A block that is in use while positions [first, last] are executed. place() sets `offset`, except
// for pinned blocks: the caller sets theirs.
struct MemoryItem {
  uint64_t bytes = 0;
  uint32_t first = 0;
  uint32_t last = 0;
  uint64_t offset = 0;
  bool pinned = false;
};

struct MemoryLayout {
  uint64_t bytes = 0;        // of the arena
  uint64_t lower_bound = 0;  // the most bytes in use at one position
};

// Sets the offsets so that items in use at the same time do not overlap. The caller makes sure that
// pinned items do not overlap. Offsets and sizes are rounded up to `alignment`. Takes O(n log n)
// time, plus a fixed number of steps for the quadratic orders. Orders that need more steps are not
// tried. Items that are not pinned do not cross the end of a part (arena.h).
// Errors  out_of_memory: the items together have more than 2^64 - 1 bytes, or one exceeds a part.
Result<MemoryLayout> place(std::span<MemoryItem> items, uint64_t alignment,
                           uint64_t part_bytes = kOnePart);

}  // namespace bowline::detail::plan
