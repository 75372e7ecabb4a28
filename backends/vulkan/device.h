// A physical device with its properties, and the opened logical device.
//
// This layer uses VkResult; backend.cpp converts results to a Status (vk_status.h).
#pragma once

#include <string>
#include <vector>

#include "loader.h"

namespace bowline::detail::vulkan {

struct PhysicalDevice {
  VkPhysicalDevice handle = VK_NULL_HANDLE;
  VkPhysicalDeviceProperties properties{};
  uint8_t pipeline_cache_uuid[VK_UUID_SIZE] = {};
  std::string driver;         // driver name and version, as reported by the driver
  std::string reason;         // why the device is unusable; empty if it is usable
  uint32_t queue_family = 0;  // the chosen family: compute, preferably without graphics
  uint32_t timestamp_bits = 0;
  uint32_t subgroup_size = 0;
  uint64_t memory_bytes = 0;          // size of the largest device-local heap
  uint64_t max_allocation_bytes = 0;  // limit of one vkAllocateMemory
  bool has_int64 = false;
  bool keeps_special_values = false;  // NaN, infinities and -0 of f32, where a shader asks for it
  bool has_16bit_storage = false;
  bool has_8bit_storage = false;
  bool has_memory_budget = false;
  bool has_subgroup_control = false;  // pipelines can require a subgroup size
  bool is_software() const {
#ifdef BOWLINE_VULKAN_GPU_KERNELS  // for tests: software devices run the kernels for GPUs
    return false;
#else
    return properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
#endif
  }
  // Lanes are vector elements of a CPU: the lane-shuffle kernels are faster on this device.
  bool prefers_lanes() const { return is_software() && subgroup_size <= 16 && has_int64; }
};

// All devices of the instance in the loader's order, including unusable devices with their reason.
std::vector<PhysicalDevice> physical_devices(const Loader& loader);

// The logical device with its compute queue and the timeline semaphore that counts its submissions.
class Device {
 public:
  Device(const Loader& loader, const PhysicalDevice& physical)
      : loader_(&loader), physical_(physical) {}
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  VkResult open();

  const DeviceFunctions& call() const { return functions_; }
  const Loader& loader() const { return *loader_; }
  const PhysicalDevice& physical() const { return physical_; }
  VkDevice handle() const { return device_; }
  VkQueue queue() const { return queue_; }
  VkCommandPool command_pool() const { return command_pool_; }

  // Submits command buffers as one batch. When they are done, the timeline has the value `value`.
  VkResult submit(const VkCommandBuffer* buffers, uint32_t count, uint64_t* value);
  // Waits until the timeline reaches `value`.
  VkResult wait(uint64_t value);
  VkResult wait_all() { return wait(submitted_); }

 private:
  const Loader* loader_;
  PhysicalDevice physical_;
  DeviceFunctions functions_{};
  VkDevice device_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
  VkCommandPool command_pool_ = VK_NULL_HANDLE;
  VkSemaphore timeline_ = VK_NULL_HANDLE;
  uint64_t submitted_ = 0;
};

}  // namespace bowline::detail::vulkan
