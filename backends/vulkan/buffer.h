// Memory that kernels access.
#pragma once

#include <map>

#include "loader.h"

namespace bowline::detail::vulkan {

enum class MemoryUse {
  device,   // device-local; also mapped if device memory is host-visible
  staging,  // host-visible, coherent, preferably cached
};

// A VkBuffer with its own memory, or a part of a Block. The owner calls destroy_buffer(). The
// backend keeps few, large buffers.
struct Buffer {
  VkBuffer handle = VK_NULL_HANDLE;
  uint64_t offset = 0;                     // in the VkBuffer
  VkDeviceMemory memory = VK_NULL_HANDLE;  // null in a part of a Block
  VkDeviceAddress address = 0;             // 0 where kernels use descriptors
  uint64_t bytes = 0;                      // as requested
  uint64_t allocated_bytes = 0;            // as allocated by the driver
  void* mapped = nullptr;      // host address, if the memory is host-visible and coherent
  bool cached = false;         // host reads are fast
  bool of_program = false;     // the program owns the VkBuffer and its memory
  uint32_t exportable_as = 0;  // VkExternalMemoryHandleTypeFlagBits
};

// A VkBuffer that several Buffers share. Where kernels use descriptors, a launch can have only a
// few VkBuffers.
struct Block {
  Buffer whole;
  MemoryUse use = MemoryUse::device;
  bool serves_all_uses = false;            // which have the same type of memory
  std::map<uint64_t, uint64_t> free = {};  // sizes by offset; no two are neighbours
};

}  // namespace bowline::detail::vulkan
