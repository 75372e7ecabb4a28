// The opened logical device.
//
// This layer uses VkResult; backend.cpp converts results to a Status (vk_status.h).
#pragma once

#include "physical_device.h"

namespace bowline::detail::vulkan {

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
  VkResult make();

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
