// SPIR-V as the build made it, made smaller for one choice of specialization constants.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bowline::detail::vulkan {

// The module with only those cases of its switches that these constants reach, where a switch is on
// a specialization constant; constants past the given ones have their defaults. A driver translates
// and inlines all code that can be reached before it knows what a constant is: of a shader with
// sixty functions one remains.
std::vector<uint32_t> chosen_cases(std::span<const uint32_t> module,
                                   std::span<const uint32_t> constants);

}  // namespace bowline::detail::vulkan
