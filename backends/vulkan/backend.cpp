#include <filesystem>

#include "open_device.h"
#include "planned_device.h"

namespace bowline::detail::device {

const Backend& backend_vulkan();

}  // namespace bowline::detail::device

namespace bowline::detail::vulkan {
namespace {

// True if the folder has a file with one of these prefixes, or cannot be read. A GPU has a node in
// /dev, from the kernel's Direct Rendering Manager or from its vendor's driver. A software driver
// has no node. Loading it just to find that out would cost 50 MB that dlclose() does not return,
// because libLLVM stays mapped.
bool has_node(const char* folder, std::initializer_list<std::string_view> prefixes) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    for (const std::string_view prefix : prefixes) {
      if (name.starts_with(prefix)) {
        return true;
      }
    }
  }
  return error && error != std::errc::no_such_file_or_directory;
}

class VulkanBackend final : public device::Backend {
 public:
  std::string_view name() const override { return "vulkan"; }
  int rank() const override { return 50; }

  bool may_have_gpu() const override {
    return has_node("/dev/dri", {"renderD"}) ||
           has_node("/dev", {"nvidia", "dxg", "kgsl", "mali", "pvr"});
  }

  std::vector<DeviceInfo> enumerate() const override {
    Loader loader;
    if (const char* reason = loader.open(); reason != nullptr) {
      return {{"vulkan", "Vulkan", reason, false, false}};
    }
    std::vector<DeviceInfo> infos;
    for (const PhysicalDevice& device : physical_devices(loader)) {
      infos.push_back(
          {format("vulkan:{}", infos.size()),
           format("{}, {}", std::string_view(device.properties.deviceName), device.driver),
           device.reason, device.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU, false});
    }
    if (infos.empty()) {
      return {{"vulkan", "Vulkan", "The Vulkan loader finds no device.", false, false}};
    }
    return infos;
  }

  Result<std::unique_ptr<device::Device>> open(int index,
                                               const DeviceOptions& options) const override {
    return OpenVulkan::open(index, options);
  }
  using Backend::adopt;
  Result<std::unique_ptr<device::Device>> adopt(const ExternalVulkan& external,
                                                const DeviceOptions& options,
                                                DeviceInfo* info) const override {
    return OpenVulkan::adopt(external, options, info);
  }
  Result<bool> require(const ExternalVulkan& external,
                       VulkanRequirements* requirements) const override {
    BOWLINE_TRY(requirements_of(external, requirements));
    return true;
  }
  // `model`: see planned_device().
  std::unique_ptr<device::Device> open_to_plan(std::string_view model,
                                               const DeviceOptions&) const override {
    return planned_device(model);
  }
};

}  // namespace
}  // namespace bowline::detail::vulkan

namespace bowline::detail::device {

const Backend& backend_vulkan() {
  static const vulkan::VulkanBackend backend;
  return backend;
}

}  // namespace bowline::detail::device
