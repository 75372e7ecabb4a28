// The SPIR-V modules of the build. The library contains them compressed; a module is unpacked when
// it is used.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bowline::detail::vulkan {

// Unpacks the first `count` words, or a few more, that tools/cmake/compile_shaders.py packed.
std::vector<uint32_t> unpack(std::span<const uint8_t> packed, size_t count);

// Returns the module with this number of namespace shader (vulkan_shaders.h).
std::vector<uint32_t> shader_module(uint32_t shader);

}  // namespace bowline::detail::vulkan
