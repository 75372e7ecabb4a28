#include "plan/arena.h"

#include <algorithm>

namespace bowline::detail::plan {
namespace {

// The place of an operand or of an entry of a table.
template <class Placed>
void move_to_part(Placed& o, uint64_t part_bytes, uint32_t parts, uint32_t slots) {
  if (o.slot != device::kArenaSlot) {
    return;
  }
  // An operand without elements may be at the end of the arena.
  const auto part = static_cast<uint32_t>(std::min<uint64_t>(o.offset / part_bytes, parts - 1));
  o.offset -= part * part_bytes;
  o.slot = part == 0 ? device::kArenaSlot : slots + part - 1;
}

}  // namespace

uint64_t arena_part_bytes(const device::Capabilities& capabilities) {
  return capabilities.max_buffer_bytes == 0
             ? kOnePart
             : capabilities.max_buffer_bytes / capabilities.alignment * capabilities.alignment;
}

uint64_t inside_part(uint64_t offset, uint64_t bytes, uint64_t part_bytes) {
  const uint64_t in_part = offset % part_bytes;
  return bytes <= part_bytes - in_part ? offset : offset - in_part + part_bytes;
}

std::vector<uint64_t> arena_parts(uint64_t arena_bytes, uint64_t part_bytes) {
  std::vector<uint64_t> parts;
  do {
    parts.push_back(std::min(arena_bytes, part_bytes));
    arena_bytes -= parts.back();
  } while (arena_bytes > 0);
  return parts;
}

void split_arena(device::Program& program, uint64_t part_bytes, uint32_t parts) {
  if (parts == 1) {
    return;
  }
  const auto move = [&](auto& o) { move_to_part(o, part_bytes, parts, program.slots); };
  for (device::Record& r : program.records) {
    std::ranges::for_each(r.inputs, move);
    std::ranges::for_each(r.outputs, move);
    move(r.workspace);
  }
  for (device::Table& t : program.tables) {
    std::ranges::for_each(t.entries, move);
  }
  program.slots += parts - 1;
}

}  // namespace bowline::detail::plan
