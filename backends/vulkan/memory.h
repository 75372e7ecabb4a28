// Buffers in device memory, accessed by device address, and host-visible staging buffers.
//
// No descriptors are bound, so maxStorageBufferRange (128 MiB on lavapipe) does not limit tensors.
#pragma once

#include "device.h"

namespace bowline::detail::vulkan {

// Of operands in arenas and io buffers. Kernels need only 8; a cache line is faster.
constexpr uint64_t kAlignment = 64;

// A VkBuffer with its own memory. The owner calls destroy(). The backend keeps few, large buffers.
struct Buffer {
  VkBuffer handle = VK_NULL_HANDLE;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  VkDeviceAddress address = 0;
  uint64_t bytes = 0;            // as requested
  uint64_t allocated_bytes = 0;  // as allocated by the driver
  void* mapped = nullptr;        // host address, if the memory is host-visible and coherent
  bool cached = false;           // host reads are fast
};

enum class MemoryUse {
  device,   // device-local; also mapped if device memory is host-visible
  staging,  // host-visible, coherent, preferably cached
};

struct MemoryBudget {
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
  bool measured = false;  // reported by the driver (VK_EXT_memory_budget)
};

VkResult create_buffer(Device& device, uint64_t bytes, MemoryUse use, Buffer* buffer);
void destroy_buffer(Device& device, Buffer* buffer);
MemoryBudget memory_budget(const Device& device);

}  // namespace bowline::detail::vulkan
