#include "common/device_of_process.h"

#include <string_view>
#include <vector>

namespace bowline::command {
namespace {

// The usable devices of a backend, in the order of their numbers.
std::vector<std::string> devices_of(std::string_view backend, std::span<const DeviceInfo> devices,
                                    bool also_software) {
  std::vector<std::string> out;
  for (const DeviceInfo& d : devices) {
    const bool is_of_backend =
        d.name.starts_with(backend) && d.name.substr(backend.size()).starts_with(":");
    if (is_of_backend && d.unusable.empty() && !d.for_tests && (also_software || !d.software)) {
      out.push_back(d.name);
    }
  }
  return out;
}

}  // namespace

std::string device_of_process(const std::string& name, std::span<const DeviceInfo> devices,
                              int local_rank) {
  std::vector<std::string> own;
  if (name == "gpu" || name == "best") {
    // As Device::open(): CUDA before Vulkan.
    own = devices_of("cuda", devices, false);
    own = own.empty() ? devices_of("vulkan", devices, false) : own;
  } else {
    own = devices_of(name, devices, true);
  }
  return own.empty() ? name : own[static_cast<size_t>(local_rank) % own.size()];
}

}  // namespace bowline::command
