// Variants of the kernels, for tests: a device is used as if it had less than it has.
#pragma once

#include "physical_device.h"

namespace bowline::detail::vulkan {

// Applies the variants named in `words`, which are separated by commas. Returns an empty text, or
// why `words` is wrong. bowline devices then shows this text as the reason of every device.
std::string apply_variants(std::string_view words, PhysicalDevice* device);

}  // namespace bowline::detail::vulkan
