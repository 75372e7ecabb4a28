// An arena in several blocks, where a device limits the size of one
// (Capabilities::max_buffer_bytes).
//
// The planner sees one range of offsets. Part i has the offsets [i * part, (i + 1) * part), and no
// value crosses the end of a part. A recording gets a slot per part.
#pragma once

#include <vector>

#include "device/backend.h"

namespace bowline::detail::plan {

constexpr uint64_t kOnePart = UINT64_MAX;

// The size of a part on a device, a multiple of its alignment; kOnePart: there is no limit.
uint64_t arena_part_bytes(const device::Capabilities& capabilities);

// The lowest offset from `offset` on, at which `bytes` do not cross the end of a part.
uint64_t inside_part(uint64_t offset, uint64_t bytes, uint64_t part_bytes);

// The sizes of the parts of an arena: at least one, and all but the last have `part_bytes`.
std::vector<uint64_t> arena_parts(uint64_t arena_bytes, uint64_t part_bytes);

// Gives the operands in parts from the second on a slot of their own, after all other slots.
void split_arena(device::Program& program, uint64_t part_bytes, uint32_t parts);

}  // namespace bowline::detail::plan
