// Specializes SPIR-V of the build for a choice of specialization constants, to make it smaller.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bowline::detail::vulkan {

// Returns the module with only the reachable cases of its switches on specialization constants.
// Missing constants have their defaults. Drivers translate and inline all reachable code before
// they evaluate constants, so a shader with sixty functions shrinks to one.
std::vector<uint32_t> chosen_cases(std::span<const uint32_t> module,
                                   std::span<const uint32_t> constants);

}  // namespace bowline::detail::vulkan
