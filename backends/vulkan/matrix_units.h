// Products of small matrices that the subgroups of a device compute together
// (VK_KHR_cooperative_matrix), and of larger matrices that its workgroups compute together
// (VK_NV_cooperative_matrix2).
#pragma once

#include "physical_device.h"

namespace bowline::detail::vulkan {

// Sets f16_unit, bf16_unit, has_matrix_hardware and workgroup_units of `device`, and the limits of
// the latter. The other limits and features must be set before.
void read_matrix_units(const Loader& loader, const Extensions& extensions, PhysicalDevice* device);

}  // namespace bowline::detail::vulkan
