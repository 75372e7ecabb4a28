// Makes plans for devices that this machine need not have (Backend::open_to_plan).
#pragma once

#include <memory>
#include <string_view>

#include "device/backend.h"

namespace bowline::detail::vulkan {

// `model` is the name of a row of the table in planned_device.cpp. Returns null for other names.
std::unique_ptr<device::Device> planned_device(std::string_view model);

}  // namespace bowline::detail::vulkan
