// Buffers in device memory, addressed by device address, and host-visible staging.
//
// No descriptor is ever bound, so maxStorageBufferRange (128 MiB on lavapipe) does not limit a
// tensor.
#pragma once

#include "device.h"

namespace bowline::detail::vulkan {

// One VkBuffer with memory of its own. The owner calls destroy(); the backend keeps few, large
// ones.
struct Buffer {
  VkBuffer handle = VK_NULL_HANDLE;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  VkDeviceAddress address = 0;
  uint64_t bytes = 0;            // as asked for
  uint64_t allocated_bytes = 0;  // as obtained from the driver
  void* mapped = nullptr;        // host address, if the memory is host-visible and coherent
  bool cached = false;           // the host reads it fast
};

enum class MemoryUse {
  device,   // device-local; mapped too where device memory is host-visible
  staging,  // host-visible, coherent, cached if possible
};

struct MemoryBudget {
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
  bool measured = false;  // the driver said so (VK_EXT_memory_budget)
};

VkResult create_buffer(Device& device, uint64_t bytes, MemoryUse use, Buffer* buffer);
void destroy_buffer(Device& device, Buffer* buffer);
MemoryBudget memory_budget(const Device& device);

}  // namespace bowline::detail::vulkan
