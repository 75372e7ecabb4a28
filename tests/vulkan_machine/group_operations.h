// Operations of the lanes of a subgroup that reach them together.
#pragma once

#include "module.h"
#include "shared_memory.h"

namespace bowline::detail::vulkan::machine {

struct Frame {
  uint32_t site;    // operation of the call
  uint32_t result;  // register
};

struct Lane {
  enum class State : uint8_t { runs, in_subgroup, at_barrier, ended };
  State state = State::runs;
  uint32_t at = 0;  // operation
  std::vector<Frame> frames;
  std::vector<uint32_t> registers;
  std::vector<char> memory;  // of its variables
  Moment moment;
};

// Compares the places of two lanes in the module, with their calls: negative if `a` comes first.
int compare(const Lane& a, const Lane& b);

// `lanes` is the subgroup. Returns the fault, or an empty text.
std::string operate(const Operation& operation, std::span<Lane> lanes,
                    std::span<Lane* const> together);

}  // namespace bowline::detail::vulkan::machine
