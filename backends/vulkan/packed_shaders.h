// The SPIR-V modules of the build. The library contains them compressed; a module is unpacked when
// it is used.
#pragma once

#include <cstdint>
#include <vector>

namespace bowline::detail::vulkan {

// Returns the module with this number of namespace shader (vulkan_shaders.h).
std::vector<uint32_t> shader_module(uint32_t shader);

}  // namespace bowline::detail::vulkan
