// What a device answers before anything runs on it.
#pragma once

#include "kernel.h"

namespace bowline::detail::vulkan {

// Device::capabilities(), except the staging buffers.
device::Capabilities capabilities_of(const PhysicalDevice& physical);
// Device::query().
device::NodeAnswer answer_to(const device::NodeQuery& query, const PhysicalDevice& physical);

}  // namespace bowline::detail::vulkan
