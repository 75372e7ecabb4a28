// An interpreter of compute shaders that behaves as badly as Vulkan allows, to find faults that
// software drivers hide.
//
// - Subgroups have any size, such as 32 or 64.
// - An operation of a subgroup sees only the lanes that reach it together; the values of others are
//   poison (a NaN).
// - Registers, variables and shared memory are poison until they are written. It is a fault to read
//   unwritten shared memory, or if two lanes access one place with no barrier between them and at
//   least one writes.
// - If the module does not ask for SignedZeroInfNanPreserve, a comparison with NaN gives the
//   opposite of what IEEE 754 says, and the minimum of NaN and a number is the number.
// - Matrices of a subgroup (VK_KHR_cooperative_matrix) are in no known lane, and matrices of a
//   workgroup (VK_NV_cooperative_matrix2) in no known subgroup. All its lanes have to reach an
//   operation on them.
// - More faults: a barrier that some lanes of a workgroup miss, an index past the end of an array,
//   an address outside of all allocations or with less than the promised alignment, and a workgroup
//   that does not end.
//
// The order of lanes between two barriers is fixed: one after another.
#pragma once

#include <functional>
#include <memory>

#include "module.h"

namespace bowline::detail::vulkan::machine {

struct Dispatch {
  const Module* module = nullptr;
  uint32_t subgroup = 32;
  std::array<uint32_t, 3> base = {0, 0, 0};
  std::array<uint32_t, 3> groups = {1, 1, 1};
  std::array<uint32_t, 64> push{};               // 256 bytes
  std::vector<uint64_t> buffers = {};            // addresses of the bound buffers
  uint64_t most_operations = uint64_t{1} << 33;  // jumps, accesses and barriers of a workgroup
};

// True if the bytes from this address on are memory of the device.
using IsMemory = std::function<bool(uint64_t address, uint64_t bytes)>;

// Runs all workgroups. Returns the first fault, or an empty text.
std::string run(const Dispatch& dispatch, const IsMemory& is_memory);

}  // namespace bowline::detail::vulkan::machine
