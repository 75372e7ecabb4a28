// Asks a driver to keep NaN, infinities and the sign of zero.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bowline::detail::vulkan {

// Returns the module with the execution mode SignedZeroInfNanPreserve for f32. Without it, a driver
// may assume that no operand is NaN or infinite, and simplify expressions (SPIR-V 1.5, section
// 3.6). For devices with shaderSignedZeroInfNanPreserveFloat32.
std::vector<uint32_t> with_special_values(std::span<const uint32_t> module);

}  // namespace bowline::detail::vulkan
