#include "open_device.h"

namespace bowline::device {

const Backend& backend_vulkan();

}  // namespace bowline::device

namespace bowline::vulkan {
namespace {

class VulkanBackend final : public device::Backend {
 public:
  std::string_view name() const override { return "vulkan"; }
  int rank() const override { return 50; }

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
};

}  // namespace
}  // namespace bowline::vulkan

namespace bowline::device {

const Backend& backend_vulkan() {
  static const vulkan::VulkanBackend backend;
  return backend;
}

}  // namespace bowline::device
