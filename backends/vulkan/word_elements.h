// Rewrites SPIR-V for devices that cannot access 8-bit or 16-bit values in memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bowline::detail::vulkan {

// Which of the features storageBuffer16BitAccess and storageBuffer8BitAccess a device lacks.
struct LackingAccess {
  bool of_16_bits = false;
  bool of_8_bits = false;
};

// Returns the module with small elements as parts of 32-bit words. A load extracts its part of a
// word. A store uses two atomic operations, so invocations may store to parts of the same word at
// the same time. Elements may be at any multiple of their size; the whole words must be accessible.
// All other code stays unchanged. The module may only load and store these types, and convert them
// from and to 32 bits, as the shaders do.
std::vector<uint32_t> elements_in_words(std::span<const uint32_t> module, LackingAccess lacking);

}  // namespace bowline::detail::vulkan
