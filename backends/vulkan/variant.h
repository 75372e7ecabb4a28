// Variants of the kernels, for tests: a device is used as if it had less than it has.
#pragma once

#include "physical_device.h"

namespace bowline::detail::vulkan {

// Applies the variants that BOWLINE_VULKAN_VARIANT names. Returns an empty text, or why its value
// is wrong (device/variants.h).
std::string apply_variants(PhysicalDevice* device);

}  // namespace bowline::detail::vulkan
