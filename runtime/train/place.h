// Whether several processes can train one model, and which of them this one is.
#pragma once

#include <cstdint>

namespace bowline::detail::train {

// The number of this process and the number of processes. Without a group there is one.
#ifdef BOWLINE_WITHOUT_PROCESSES
constexpr bool kHasProcesses = false;
struct Place {
  static constexpr uint32_t rank = 0;
  static constexpr uint32_t size = 1;
};
#else
constexpr bool kHasProcesses = true;
struct Place {
  uint32_t rank = 0;
  uint32_t size = 1;
};
#endif

}  // namespace bowline::detail::train
