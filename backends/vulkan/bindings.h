// Rewrites SPIR-V for devices without bufferDeviceAddress: shaders reach buffers through
// descriptors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bowline::detail::vulkan {

// What a shader has in place of a device address: the offset in the low word, and in the high word
// the number of the buffer in the descriptor array, plus 1. So 0 is still no address, and adding
// bytes to an address moves it inside its buffer.
constexpr uint64_t address_of_bound(uint32_t buffer) { return (uint64_t{buffer} + 1) << 32; }

// Returns the module with descriptor set 0, binding 0, an array of `buffers` storage buffers, in
// place of device addresses. Each access selects its buffer with a switch, so the driver needs no
// feature for dynamic indices of descriptors, and lanes may access different buffers. All other
// code stays unchanged. The module must not use matrix units.
std::vector<uint32_t> with_bindings(std::span<const uint32_t> module, uint32_t buffers);

}  // namespace bowline::detail::vulkan
