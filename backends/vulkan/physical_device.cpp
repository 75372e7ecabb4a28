#include "physical_device.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/status.h"
#include "matrix_units.h"
#include "variant.h"

namespace bowline::detail::vulkan {
namespace {

Extensions extensions_of(const Loader& loader, VkPhysicalDevice device) {
  uint32_t count = 0;
  loader.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr);
  Extensions extensions(count);
  if (loader.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, extensions.data()) < 0) {
    count = 0;
  }
  extensions.resize(count);
  return extensions;
}

// Chooses a compute queue family, preferably without graphics. Returns false if no family exists.
bool choose_queue_family(const Loader& loader, PhysicalDevice* device) {
  uint32_t count = 0;
  loader.vkGetPhysicalDeviceQueueFamilyProperties(device->handle, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  loader.vkGetPhysicalDeviceQueueFamilyProperties(device->handle, &count, families.data());
  bool found = false;
  for (uint32_t i = 0; i < count; ++i) {
    const bool compute = (families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) != 0;
    const bool graphics = (families[i].queueFlags & VK_QUEUE_GRAPHICS_BIT) != 0;
    if (compute && (!found || !graphics)) {
      device->queue_family = i;
      device->timestamp_bits = families[i].timestampValidBits;
      found = true;
    }
  }
  return found;
}

void read_memory(const Loader& loader, PhysicalDevice* device) {
  auto memory = typed<VkPhysicalDeviceMemoryProperties2>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2);
  loader.vkGetPhysicalDeviceMemoryProperties2(device->handle, &memory);
  bool has_other = false;
  for (uint32_t i = 0; i < memory.memoryProperties.memoryHeapCount; ++i) {
    const VkMemoryHeap& heap = memory.memoryProperties.memoryHeaps[i];
    if ((heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0) {
      device->memory_bytes = std::max<uint64_t>(device->memory_bytes, heap.size);
    } else {
      has_other = true;
    }
  }
  // Integrated GPUs may show two heaps of one memory.
  device->is_discrete =
      has_other && device->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
}

// The sizes of subgroups and workgroups.
void read_groups(const VkPhysicalDeviceSubgroupProperties& subgroup,
                 const VkPhysicalDeviceSubgroupSizeControlProperties& control,
                 PhysicalDevice* device) {
  const VkPhysicalDeviceLimits& limits = device->properties.limits;
  device->subgroup_size = device->default_subgroup = subgroup.subgroupSize;
  device->max_invocations =
      std::min(limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0]);
  device->max_shared_bytes = limits.maxComputeSharedMemorySize;
  if ((control.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) == 0) {
    return;
  }
  device->min_subgroup = control.minSubgroupSize;
  device->max_subgroup = control.maxSubgroupSize;
  device->subgroup_size = device->nearest_subgroup(std::clamp(
      subgroup.subgroupSize, PhysicalDevice::kLeastSubgroup, PhysicalDevice::kMostSubgroup));
  device->max_invocations = std::min(device->max_invocations,
                                     device->subgroup_size * control.maxComputeWorkgroupSubgroups);
}

void read_properties(const Loader& loader, const Extensions& extensions, PhysicalDevice* device,
                     VkPhysicalDeviceSubgroupProperties* subgroup) {
  auto maintenance = typed<VkPhysicalDeviceMaintenance3Properties>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES);
  auto maintenance4 = typed<VkPhysicalDeviceMaintenance4Properties>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES);
  auto floats = typed<VkPhysicalDeviceFloatControlsProperties>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES);
  auto driver =
      typed<VkPhysicalDeviceDriverProperties>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES);
  auto control = typed<VkPhysicalDeviceSubgroupSizeControlProperties>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES);
  *subgroup = typed<VkPhysicalDeviceSubgroupProperties>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES);
  Chain chain;
  chain.add(subgroup);
  chain.add(&maintenance);
  chain.add(&maintenance4, has_extension(extensions, VK_KHR_MAINTENANCE_4_EXTENSION_NAME));
  chain.add(&floats);
  chain.add(&driver);
  chain.add(&control, has_extension(extensions, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME));
  auto properties =
      typed<VkPhysicalDeviceProperties2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2);
  properties.pNext = chain.first();
  loader.vkGetPhysicalDeviceProperties2(device->handle, &properties);
  device->properties = properties.properties;
  read_groups(*subgroup, control, device);
  device->keeps_special_values = floats.shaderSignedZeroInfNanPreserveFloat32 == VK_TRUE;
  device->max_allocation_bytes = maintenance.maxMemoryAllocationSize;
  device->max_buffer_bytes = maintenance.maxMemoryAllocationSize;
  if (maintenance4.maxBufferSize != 0) {
    device->max_buffer_bytes = std::min(device->max_buffer_bytes, maintenance4.maxBufferSize);
  }
  device->driver = std::string(driver.driverName) + " " + driver.driverInfo;
  std::memcpy(device->pipeline_cache_uuid, properties.properties.pipelineCacheUUID, VK_UUID_SIZE);
}

// Features that every device needs.
struct Needed {
  VkBool32 available;
  const char* name;
};

const char* read_features(const Loader& loader, PhysicalDevice* device) {
  auto control = typed<VkPhysicalDeviceSubgroupSizeControlFeatures>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES);
  auto vulkan12 = typed<VkPhysicalDeviceVulkan12Features>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
  auto half = typed<VkPhysicalDevice16BitStorageFeatures>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES);
  Chain chain;
  chain.add(&vulkan12);
  chain.add(&half);
  chain.add(&control, device->max_subgroup != 0);
  auto features = typed<VkPhysicalDeviceFeatures2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2);
  features.pNext = chain.first();
  loader.vkGetPhysicalDeviceFeatures2(device->handle, &features);
  device->has_int64 = features.features.shaderInt64 == VK_TRUE;
  device->has_16bit_storage = half.storageBuffer16BitAccess == VK_TRUE;
  device->has_8bit_storage = vulkan12.storageBuffer8BitAccess == VK_TRUE;
  if (control.subgroupSizeControl != VK_TRUE || control.computeFullSubgroups != VK_TRUE) {
    device->min_subgroup = device->max_subgroup = 0;
  }
  device->has_buffer_addresses = vulkan12.bufferDeviceAddress == VK_TRUE;
  for (const Needed& f :
       {Needed{vulkan12.timelineSemaphore, "Its driver lacks the feature timelineSemaphore."},
        Needed{vulkan12.scalarBlockLayout, "Its driver lacks the feature scalarBlockLayout."}}) {
    if (f.available != VK_TRUE) {
      return f.name;
    }
  }
  return nullptr;
}

// Why the subgroups or workgroups do not fit, or an empty text.
std::string refuse_groups(const VkPhysicalDeviceSubgroupProperties& subgroup,
                          const PhysicalDevice& device) {
  struct Operation {
    VkSubgroupFeatureFlags flag;
    const char* name;
  };
  for (const Operation& o : {Operation{VK_SUBGROUP_FEATURE_BASIC_BIT, "basic"},
                             Operation{VK_SUBGROUP_FEATURE_ARITHMETIC_BIT, "arithmetic"},
                             Operation{VK_SUBGROUP_FEATURE_BALLOT_BIT, "ballot"},
                             Operation{VK_SUBGROUP_FEATURE_SHUFFLE_BIT, "shuffle"}}) {
    if ((subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) == 0 ||
        (subgroup.supportedOperations & o.flag) == 0) {
      return format("Its driver lacks the subgroup operations '{}' in compute shaders.", o.name);
    }
  }
  if (!PhysicalDevice::works_with(device.subgroup_size)) {
    return format("Its subgroups have {} invocations, and its driver cannot be asked for {} to {}.",
                  device.subgroup_size, PhysicalDevice::kLeastSubgroup,
                  PhysicalDevice::kMostSubgroup);
  }
  const PhysicalDevice least;
  if (device.max_invocations < least.max_invocations ||
      device.max_shared_bytes < least.max_shared_bytes) {
    return format(
        "Its workgroups have at most {} invocations and {} bytes of shared memory; kernels need {} "
        "and {}.",
        device.max_invocations, device.max_shared_bytes, least.max_invocations,
        least.max_shared_bytes);
  }
  return {};
}

// Reads everything. Returns why the device is unusable, or an empty text.
std::string read_device(const Loader& loader, PhysicalDevice* device) {
  loader.vkGetPhysicalDeviceProperties(device->handle, &device->properties);
  if (device->properties.apiVersion < VK_API_VERSION_1_2) {
    return "Its driver is older than Vulkan 1.2.";
  }
  const Extensions extensions = extensions_of(loader, device->handle);
  device->has_memory_budget = has_extension(extensions, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  device->has_memory_fd = has_extension(extensions, VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME);
  device->has_dma_buf = device->has_memory_fd &&
                        has_extension(extensions, VK_EXT_EXTERNAL_MEMORY_DMA_BUF_EXTENSION_NAME);
  device->has_semaphore_fd = has_extension(extensions, VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME);
  device->is_portability_subset = has_extension(extensions, kPortabilitySubsetExtension);
  VkPhysicalDeviceSubgroupProperties subgroup{};
  read_properties(loader, extensions, device, &subgroup);
  read_memory(loader, device);
  const char* const missing = read_features(loader, device);
  if (device->max_subgroup == 0) {
    device->subgroup_size = device->default_subgroup;
  }
  if (!choose_queue_family(loader, device)) {
    return "It has no compute queue.";
  }
  if (missing != nullptr) {
    return missing;
  }
  if (std::string reason = refuse_groups(subgroup, *device); !reason.empty()) {
    return reason;
  }
  read_matrix_units(loader, extensions, device);
  if (!device->has_buffer_addresses) {
    device->use_descriptors();
  }
  return apply_variants(device);
}

}  // namespace

void PhysicalDevice::use_descriptors() {
  constexpr uint32_t kEnough = 16;
  has_buffer_addresses = false;
  const VkPhysicalDeviceLimits& limits = properties.limits;
  max_bound_buffers = std::min(
      {limits.maxPerStageDescriptorStorageBuffers, limits.maxDescriptorSetStorageBuffers, kEnough});
  max_buffer_bytes = std::min<uint64_t>(max_buffer_bytes, limits.maxStorageBufferRange);
  f16_unit = bf16_unit = {};
}

const WorkgroupUnit* PhysicalDevice::workgroup_unit(DType type, uint32_t invocations) const {
  const auto found = std::ranges::find_if(workgroup_units, [&](const WorkgroupUnit& unit) {
    return unit.type == type && unit.invocations == invocations;
  });
  return found == workgroup_units.end() || matrix_unit(type) == nullptr ? nullptr : &*found;
}

uint32_t PhysicalDevice::nearest_subgroup(uint32_t wanted) const {
  return max_subgroup == 0 ? subgroup_size
                           : std::clamp(std::bit_floor(wanted), min_subgroup, max_subgroup);
}

std::vector<VkPhysicalDevice> handles_of_devices(const Loader& loader) {
  uint32_t count = 0;
  std::vector<VkPhysicalDevice> handles;
  if (loader.vkEnumeratePhysicalDevices(loader.instance(), &count, nullptr) == VK_SUCCESS) {
    handles.resize(count);
    if (loader.vkEnumeratePhysicalDevices(loader.instance(), &count, handles.data()) < 0) {
      count = 0;
    }
  }
  handles.resize(count);
  return handles;
}

PhysicalDevice physical_device(const Loader& loader, VkPhysicalDevice handle) {
  PhysicalDevice device;
  device.handle = handle;
  device.reason = read_device(loader, &device);
  return device;
}

std::vector<PhysicalDevice> physical_devices(const Loader& loader) {
  std::vector<PhysicalDevice> devices;
  for (const VkPhysicalDevice handle : handles_of_devices(loader)) {
    devices.push_back(physical_device(loader, handle));
  }
  return devices;
}

std::string take_queue_family(const Loader& loader, uint32_t family, PhysicalDevice* device) {
  uint32_t count = 0;
  loader.vkGetPhysicalDeviceQueueFamilyProperties(device->handle, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  loader.vkGetPhysicalDeviceQueueFamilyProperties(device->handle, &count, families.data());
  if (family >= count) {
    return format("The Vulkan device has no queue family {} (of {}).", family, count);
  }
  if ((families[family].queueFlags & VK_QUEUE_COMPUTE_BIT) == 0) {
    return format("Queue family {} of the Vulkan device cannot compute.", family);
  }
  device->queue_family = family;
  device->timestamp_bits = families[family].timestampValidBits;
  return {};
}

}  // namespace bowline::detail::vulkan
