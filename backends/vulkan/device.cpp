#include "device.h"

#include <algorithm>
#include <cstring>

namespace bowline::detail::vulkan {
namespace {

bool has_extension(const std::vector<VkExtensionProperties>& extensions, const char* name) {
  return std::any_of(extensions.begin(), extensions.end(), [name](const VkExtensionProperties& e) {
    return std::strcmp(e.extensionName, name) == 0;
  });
}

std::vector<VkExtensionProperties> extensions_of(const Loader& loader, VkPhysicalDevice device) {
  uint32_t count = 0;
  loader.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr);
  std::vector<VkExtensionProperties> extensions(count);
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

void read_properties(const Loader& loader, PhysicalDevice* device,
                     VkPhysicalDeviceSubgroupProperties* subgroup) {
  auto maintenance = typed<VkPhysicalDeviceMaintenance3Properties>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES);
  auto floats = typed<VkPhysicalDeviceFloatControlsProperties>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES);
  floats.pNext = &maintenance;
  auto driver =
      typed<VkPhysicalDeviceDriverProperties>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES);
  auto control = typed<VkPhysicalDeviceSubgroupSizeControlProperties>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES);
  control.pNext = &floats;
  driver.pNext = device->has_subgroup_control ? static_cast<void*>(&control) : &floats;
  subgroup->sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES;
  subgroup->pNext = &driver;
  auto properties =
      typed<VkPhysicalDeviceProperties2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2);
  properties.pNext = subgroup;
  loader.vkGetPhysicalDeviceProperties2(device->handle, &properties);
  device->properties = properties.properties;
  device->subgroup_size = subgroup->subgroupSize;
  device->has_subgroup_control =
      device->has_subgroup_control &&
      (control.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
  device->keeps_special_values = floats.shaderSignedZeroInfNanPreserveFloat32 == VK_TRUE;
  device->max_allocation_bytes = maintenance.maxMemoryAllocationSize;
  device->driver = std::string(driver.driverName) + " " + driver.driverInfo;
  std::memcpy(device->pipeline_cache_uuid, properties.properties.pipelineCacheUUID, VK_UUID_SIZE);

  auto memory = typed<VkPhysicalDeviceMemoryProperties2>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2);
  loader.vkGetPhysicalDeviceMemoryProperties2(device->handle, &memory);
  for (uint32_t i = 0; i < memory.memoryProperties.memoryHeapCount; ++i) {
    const VkMemoryHeap& heap = memory.memoryProperties.memoryHeaps[i];
    if ((heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0) {
      device->memory_bytes = std::max<uint64_t>(device->memory_bytes, heap.size);
    }
  }
}

// A feature that the driver lacks, or null.
const char* lacking(const Loader& loader, PhysicalDevice* device) {
  VkPhysicalDeviceSubgroupProperties subgroup{};
  if (device->properties.apiVersion < VK_API_VERSION_1_2) {
    return "Its driver is older than Vulkan 1.2.";
  }
  auto control = typed<VkPhysicalDeviceSubgroupSizeControlFeatures>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES);
  auto vulkan12 = typed<VkPhysicalDeviceVulkan12Features>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
  const auto extensions = extensions_of(loader, device->handle);
  device->has_subgroup_control =
      has_extension(extensions, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
  read_properties(loader, device, &subgroup);
  auto half = typed<VkPhysicalDevice16BitStorageFeatures>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES);
  half.pNext = device->has_subgroup_control ? &control : nullptr;
  vulkan12.pNext = &half;
  auto features = typed<VkPhysicalDeviceFeatures2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2);
  features.pNext = &vulkan12;
  loader.vkGetPhysicalDeviceFeatures2(device->handle, &features);
  device->has_int64 = features.features.shaderInt64 == VK_TRUE;
  device->has_16bit_storage = half.storageBuffer16BitAccess == VK_TRUE;
  device->has_8bit_storage = vulkan12.storageBuffer8BitAccess == VK_TRUE;
  device->has_memory_budget = has_extension(extensions, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  device->has_subgroup_control = device->has_subgroup_control &&
                                 control.subgroupSizeControl == VK_TRUE &&
                                 control.computeFullSubgroups == VK_TRUE;
  if (!choose_queue_family(loader, device)) {
    return "It has no compute queue.";
  }
  if (vulkan12.bufferDeviceAddress != VK_TRUE) {
    return "Its driver lacks the feature bufferDeviceAddress.";
  }
  if (vulkan12.timelineSemaphore != VK_TRUE) {
    return "Its driver lacks the feature timelineSemaphore.";
  }
  if (vulkan12.scalarBlockLayout != VK_TRUE) {
    return "Its driver lacks the feature scalarBlockLayout.";
  }
  const VkSubgroupFeatureFlags needed = VK_SUBGROUP_FEATURE_BASIC_BIT |
                                        VK_SUBGROUP_FEATURE_ARITHMETIC_BIT |
                                        VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
  if ((subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) == 0 ||
      (subgroup.supportedOperations & needed) != needed) {
    return "Its driver lacks subgroup arithmetic or shuffles in compute shaders.";
  }
  if (subgroup.subgroupSize < 4 || subgroup.subgroupSize > 64) {
    return "Its subgroups have fewer than 4 or more than 64 invocations.";
  }
  return nullptr;
}

}  // namespace

std::vector<PhysicalDevice> physical_devices(const Loader& loader) {
  uint32_t count = 0;
  std::vector<VkPhysicalDevice> handles;
  if (loader.vkEnumeratePhysicalDevices(loader.instance(), &count, nullptr) == VK_SUCCESS) {
    handles.resize(count);
    if (loader.vkEnumeratePhysicalDevices(loader.instance(), &count, handles.data()) < 0) {
      count = 0;
    }
  }
  std::vector<PhysicalDevice> devices(count);
  for (uint32_t i = 0; i < count; ++i) {
    devices[i].handle = handles[i];
    loader.vkGetPhysicalDeviceProperties(handles[i], &devices[i].properties);
    if (const char* reason = lacking(loader, &devices[i]); reason != nullptr) {
      devices[i].reason = reason;
    }
  }
  return devices;
}

Device::~Device() {
  if (device_ == VK_NULL_HANDLE) {
    return;
  }
  functions_.vkDeviceWaitIdle(device_);
  if (command_pool_ != VK_NULL_HANDLE) {
    functions_.vkDestroyCommandPool(device_, command_pool_, nullptr);
  }
  if (timeline_ != VK_NULL_HANDLE) {
    functions_.vkDestroySemaphore(device_, timeline_, nullptr);
  }
  functions_.vkDestroyDevice(device_, nullptr);
}

VkResult Device::open() {
  const float priority = 1;
  auto queue = typed<VkDeviceQueueCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO);
  queue.queueFamilyIndex = physical_.queue_family;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  auto control = typed<VkPhysicalDeviceSubgroupSizeControlFeatures>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES);
  control.subgroupSizeControl = VK_TRUE;
  control.computeFullSubgroups = VK_TRUE;
  auto vulkan12 = typed<VkPhysicalDeviceVulkan12Features>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
  auto half = typed<VkPhysicalDevice16BitStorageFeatures>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES);
  half.pNext = physical_.has_subgroup_control ? &control : nullptr;
  half.storageBuffer16BitAccess = physical_.has_16bit_storage ? VK_TRUE : VK_FALSE;
  vulkan12.pNext = &half;
  vulkan12.storageBuffer8BitAccess = physical_.has_8bit_storage ? VK_TRUE : VK_FALSE;
  vulkan12.bufferDeviceAddress = VK_TRUE;
  vulkan12.timelineSemaphore = VK_TRUE;
  vulkan12.scalarBlockLayout = VK_TRUE;
  auto features = typed<VkPhysicalDeviceFeatures2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2);
  features.pNext = &vulkan12;
  features.features.shaderInt64 = physical_.has_int64 ? VK_TRUE : VK_FALSE;
  std::vector<const char*> extensions;
  if (physical_.has_subgroup_control) {
    extensions.push_back(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
  }
  if (physical_.has_memory_budget) {
    extensions.push_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  }
  auto info = typed<VkDeviceCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO);
  info.pNext = &features;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  VkResult result = loader_->vkCreateDevice(physical_.handle, &info, nullptr, &device_);
  if (result != VK_SUCCESS) {
    return result;
  }
  if (!loader_->load(device_, &functions_)) {
    // Destroyed here, because a caller with a handle may call every function.
    if (functions_.vkDestroyDevice != nullptr) {
      functions_.vkDestroyDevice(device_, nullptr);
    }
    device_ = VK_NULL_HANDLE;
    return VK_ERROR_INCOMPATIBLE_DRIVER;
  }
  functions_.vkGetDeviceQueue(device_, physical_.queue_family, 0, &queue_);
  auto pool = typed<VkCommandPoolCreateInfo>(VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO);
  pool.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
  pool.queueFamilyIndex = physical_.queue_family;
  result = functions_.vkCreateCommandPool(device_, &pool, nullptr, &command_pool_);
  if (result != VK_SUCCESS) {
    return result;
  }
  auto type = typed<VkSemaphoreTypeCreateInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO);
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  auto semaphore = typed<VkSemaphoreCreateInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO);
  semaphore.pNext = &type;
  return functions_.vkCreateSemaphore(device_, &semaphore, nullptr, &timeline_);
}

VkResult Device::submit(const VkCommandBuffer* buffers, uint32_t count, uint64_t* value) {
  const uint64_t next = submitted_ + 1;
  auto timeline =
      typed<VkTimelineSemaphoreSubmitInfo>(VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO);
  timeline.signalSemaphoreValueCount = 1;
  timeline.pSignalSemaphoreValues = &next;
  auto info = typed<VkSubmitInfo>(VK_STRUCTURE_TYPE_SUBMIT_INFO);
  info.pNext = &timeline;
  info.commandBufferCount = count;
  info.pCommandBuffers = buffers;
  info.signalSemaphoreCount = 1;
  info.pSignalSemaphores = &timeline_;
  const VkResult result = functions_.vkQueueSubmit(queue_, 1, &info, VK_NULL_HANDLE);
  if (result == VK_SUCCESS) {
    submitted_ = next;
    *value = next;
  }
  return result;
}

VkResult Device::wait(uint64_t value) {
  if (value == 0) {
    return VK_SUCCESS;
  }
  auto info = typed<VkSemaphoreWaitInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO);
  info.semaphoreCount = 1;
  info.pSemaphores = &timeline_;
  info.pValues = &value;
  return functions_.vkWaitSemaphores(device_, &info, UINT64_MAX);
}

}  // namespace bowline::detail::vulkan
