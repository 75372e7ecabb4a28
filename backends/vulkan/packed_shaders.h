// The SPIR-V modules of the build. They are packed in the library, and unpacked at their first use.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bowline::detail::vulkan {

// The words of `packed`, which tools/cmake/compile_shaders.py made of `count` words.
std::vector<uint32_t> unpack(std::span<const uint8_t> packed, size_t count);

// The module of a number of namespace shader (vulkan_shaders.h). It stays where it is.
std::span<const uint32_t> shader_module(uint32_t shader);

}  // namespace bowline::detail::vulkan
