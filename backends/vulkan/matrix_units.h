// Products of small matrices that the subgroups of a device compute together
// (VK_KHR_cooperative_matrix).
#pragma once

#include "physical_device.h"

namespace bowline::detail::vulkan {

// Sets f16_unit, bf16_unit and has_matrix_hardware of `device`. Its limits and features must be set
// before.
void read_matrix_units(const Loader& loader, const Extensions& extensions, PhysicalDevice* device);

}  // namespace bowline::detail::vulkan
