// Buffers in device memory and host-visible staging buffers.
//
// Kernels access them by device address, so maxStorageBufferRange (128 MiB on lavapipe) does not
// limit tensors. If the device has no addresses, buffers are parts of blocks (buffer.h).
#pragma once

#include "device.h"

namespace bowline::detail::vulkan {

// Of operands in arenas and io buffers. Kernels need only 8; a cache line is faster.
constexpr uint64_t kAlignment = 64;

struct MemoryBudget {
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
  bool measured = false;  // reported by the driver (VK_EXT_memory_budget)
};

// A buffer whose memory others can use, too.
struct Sharing {
  VkExternalMemoryHandleTypeFlagBits type = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
  int fd = -1;                    // to import; it belongs to the driver afterwards
  uint64_t allocation_bytes = 0;  // of an import
  uint32_t memory_types = UINT32_MAX;
};
// Whether the driver can export such buffers, or import them.
bool can_share(const Device& device, const Sharing& sharing);
// Returns VK_ERROR_INVALID_EXTERNAL_HANDLE if the buffer does not fit into an imported allocation.
VkResult create_shared_buffer(Device& device, uint64_t bytes, const Sharing& sharing,
                              Buffer* buffer);

VkResult create_buffer(Device& device, uint64_t bytes, MemoryUse use, Buffer* buffer);
void destroy_buffer(Device& device, Buffer* buffer);
MemoryBudget memory_budget(const Device& device);

}  // namespace bowline::detail::vulkan
