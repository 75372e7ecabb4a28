// Devices of the program.
#include <algorithm>

#include "device_features.h"
#include "open_device.h"

namespace bowline::detail::vulkan {

const char* Loader::adopt(PFN_vkGetInstanceProcAddr get_proc, VkInstance instance) {
  get_proc_ = get_proc;
  if (!load(instance)) {
    return "The VkInstance of the program lacks functions of Vulkan 1.2.";
  }
  of_program_ = instance;
  return nullptr;
}

namespace {

// The VkPhysicalDevice of the program, as far as Bowline can use it.
Result<PhysicalDevice> physical_of(const ExternalVulkan& external, Loader* loader) {
  const auto require = [](bool is_set, std::string_view name) -> Status {
    BOWLINE_REQUIRE(is_set, "ExternalVulkan::{} is null.", name);
    return {};
  };
  BOWLINE_TRY(require(external.get_instance_proc_addr != nullptr, "get_instance_proc_addr"));
  BOWLINE_TRY(require(external.instance != nullptr, "instance"));
  BOWLINE_TRY(require(external.physical_device != nullptr, "physical_device"));
  const char* const reason =
      loader->adopt(reinterpret_cast<PFN_vkGetInstanceProcAddr>(external.get_instance_proc_addr),
                    static_cast<VkInstance>(external.instance));
  if (reason != nullptr) {
    return Status(Code::unsupported, reason);
  }
  auto* const handle = static_cast<VkPhysicalDevice>(external.physical_device);
  const std::vector<VkPhysicalDevice> all = handles_of_devices(*loader);
  BOWLINE_REQUIRE(
      std::ranges::find(all, handle) != all.end(),
      "The VkInstance has {} devices, and ExternalVulkan::physical_device is not among them.",
      all.size());
  PhysicalDevice physical = physical_device(*loader, handle);
  BOWLINE_REQUIRE_CODE(physical.reason.empty(), Code::unsupported,
                       "The Vulkan device of the program cannot be used. {}", physical.reason);
  return physical;
}

// What VulkanRequirements::features points into.
struct Owner {
  PhysicalDevice physical;
  DeviceFeatures features{physical};
  explicit Owner(const PhysicalDevice& of) : physical(of) {}
};

}  // namespace

Status requirements_of(const ExternalVulkan& external, VulkanRequirements* out) {
  Loader loader;
  BOWLINE_TRY_ASSIGN(const PhysicalDevice physical, physical_of(external, &loader));
  const auto owner = std::make_shared<const Owner>(physical);
  const DeviceFeatures& features = owner->features;
  out->extensions.assign(features.extensions().begin(), features.extensions().end());
  out->needed_features.assign(features.needed().begin(), features.needed().end());
  out->wanted_features.assign(features.wanted().begin(), features.wanted().end());
  out->features = features.first();
  out->owner = owner;
  return {};
}

Result<std::unique_ptr<device::Device>> OpenVulkan::adopt(const ExternalVulkan& external,
                                                          const DeviceOptions& options,
                                                          DeviceInfo* info) {
  std::unique_ptr<OpenVulkan> self(new OpenVulkan(nullptr));
  BOWLINE_TRY_ASSIGN(PhysicalDevice physical, physical_of(external, &self->loader_));
  for (const auto& [handle, name] :
       {std::pair<const void*, std::string_view>{external.device, "device"},
        {external.queue, "queue"},
        {external.create_info, "create_info"}}) {
    BOWLINE_REQUIRE(handle != nullptr, "ExternalVulkan::{} is null.", name);
  }
  BOWLINE_REQUIRE((external.lock == nullptr) == (external.unlock == nullptr),
                  "ExternalVulkan has only one of lock() and unlock(). Set both, or none.");
  const std::string wrong = take_queue_family(self->loader_, external.queue_family, &physical);
  BOWLINE_REQUIRE(wrong.empty(), "{}", wrong);
  const auto& made = *static_cast<const VkDeviceCreateInfo*>(external.create_info);
  BOWLINE_REQUIRE(made.sType == VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                  "ExternalVulkan::create_info is not a VkDeviceCreateInfo: its sType is {}.",
                  static_cast<int>(made.sType));
  const std::string lacking = restrict_to(made, &physical);
  BOWLINE_REQUIRE_CODE(lacking.empty(), Code::unsupported,
                       "The VkDevice of the program was made without the feature {}. "
                       "vulkan_requirements() lists the features to enable.",
                       lacking);
  BOWLINE_REQUIRE_CODE(PhysicalDevice::works_with(physical.subgroup_size), Code::unsupported,
                       "The subgroups of the Vulkan device have {} invocations. Enable the feature "
                       "subgroupSizeControl, so that Bowline can ask for {} to {}.",
                       physical.subgroup_size, PhysicalDevice::kLeastSubgroup,
                       PhysicalDevice::kMostSubgroup);
  self->program_ =
      ProgramDevice{static_cast<VkDevice>(external.device), static_cast<VkQueue>(external.queue),
                    external.lock, external.unlock};
  info->name = "vulkan:external";
  info->description =
      format("{}, {}", std::string_view(physical.properties.deviceName), physical.driver);
  info->software = physical.is_software();
  BOWLINE_TRY(self->start_first(std::move(physical), options));
  return std::unique_ptr<device::Device>(std::move(self));
}

}  // namespace bowline::detail::vulkan
