// SPIR-V as the build made it, for devices that have no access to numbers of 16 or 8 bits in
// memory.
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

// The module with its elements of such sizes as parts of 32-bit words: a load takes its part of a
// word, a store sets it with two atomic operations, so that invocations may store to the parts of
// one word at the same time. Elements may lie at any address that is a multiple of their size; the
// words that they lie in must be there as a whole. What else a module computes stays as it is.
// Numbers of these sizes must be loaded, stored and converted from and to 32 bits alone, as the
// shaders do.
std::vector<uint32_t> elements_in_words(std::span<const uint32_t> module, LackingAccess lacking);

}  // namespace bowline::detail::vulkan
