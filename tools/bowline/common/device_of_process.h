// Divides the GPUs of a machine among the processes that train one model.
#pragma once

#include <span>
#include <string>

#include "bowline.h"

namespace bowline::command {

// Returns the device of process `local_rank` of this machine. A name without a number (`gpu`,
// `best`, `cuda`, `vulkan`) stands for all such devices, which the processes take in turn. Other
// names are returned as they are.
std::string device_of_process(const std::string& name, std::span<const DeviceInfo> devices,
                              int local_rank);

}  // namespace bowline::command
