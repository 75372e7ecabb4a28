#include "memory.h"

namespace bowline::detail::vulkan {
namespace {

constexpr VkMemoryPropertyFlags kHost =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;

struct MemoryType {
  uint32_t index = UINT32_MAX;
  VkMemoryPropertyFlags flags = 0;
};

// The first memory type with all wanted flags. Sets of flags are tried from the most to the least
// wanted.
MemoryType choose_type(const Device& device, uint32_t allowed, MemoryUse use) {
  auto memory = typed<VkPhysicalDeviceMemoryProperties2>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2);
  device.loader().vkGetPhysicalDeviceMemoryProperties2(device.physical().handle, &memory);
  const VkMemoryPropertyFlags for_device[] = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0};
  const VkMemoryPropertyFlags for_staging[] = {kHost | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, kHost};
  for (const VkMemoryPropertyFlags wanted : use == MemoryUse::device ? for_device : for_staging) {
    for (uint32_t i = 0; i < memory.memoryProperties.memoryTypeCount; ++i) {
      const VkMemoryPropertyFlags flags = memory.memoryProperties.memoryTypes[i].propertyFlags;
      if ((allowed & (1u << i)) != 0 && (flags & wanted) == wanted) {
        return {i, flags};
      }
    }
  }
  return {};
}

VkResult bind_memory(Device& device, MemoryUse use, Buffer* buffer) {
  const DeviceFunctions& vk = device.call();
  VkMemoryRequirements needs{};
  vk.vkGetBufferMemoryRequirements(device.handle(), buffer->handle, &needs);
  const MemoryType type = choose_type(device, needs.memoryTypeBits, use);
  if (type.index == UINT32_MAX || needs.size > device.physical().max_allocation_bytes) {
    return VK_ERROR_OUT_OF_DEVICE_MEMORY;
  }
  auto flags = typed<VkMemoryAllocateFlagsInfo>(VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO);
  flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  auto info = typed<VkMemoryAllocateInfo>(VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO);
  info.pNext = &flags;
  info.allocationSize = needs.size;
  info.memoryTypeIndex = type.index;
  VkResult result = vk.vkAllocateMemory(device.handle(), &info, nullptr, &buffer->memory);
  if (result != VK_SUCCESS) {
    return result;
  }
  buffer->allocated_bytes = needs.size;
  result = vk.vkBindBufferMemory(device.handle(), buffer->handle, buffer->memory, 0);
  buffer->cached = (type.flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0;
  if (result == VK_SUCCESS && (type.flags & kHost) == kHost) {
    result = vk.vkMapMemory(device.handle(), buffer->memory, 0, VK_WHOLE_SIZE, 0, &buffer->mapped);
  }
  return result;
}

}  // namespace

VkResult create_buffer(Device& device, uint64_t bytes, MemoryUse use, Buffer* buffer) {
  *buffer = {};
  buffer->bytes = bytes;
  auto info = typed<VkBufferCreateInfo>(VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO);
  info.size = bytes == 0 ? 4 : (bytes + 3) / 4 * 4;  // fills and 32-bit loads need whole words
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
               VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
  VkResult result = device.call().vkCreateBuffer(device.handle(), &info, nullptr, &buffer->handle);
  if (result == VK_SUCCESS) {
    result = bind_memory(device, use, buffer);
  }
  if (result != VK_SUCCESS) {
    destroy_buffer(device, buffer);
    return result;
  }
  auto address = typed<VkBufferDeviceAddressInfo>(VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO);
  address.buffer = buffer->handle;
  buffer->address = device.call().vkGetBufferDeviceAddress(device.handle(), &address);
  return VK_SUCCESS;
}

void destroy_buffer(Device& device, Buffer* buffer) {
  if (device.hung() != nullptr) {
    return;
  }
  if (buffer->handle != VK_NULL_HANDLE) {
    device.call().vkDestroyBuffer(device.handle(), buffer->handle, nullptr);
  }
  if (buffer->memory != VK_NULL_HANDLE) {
    device.call().vkFreeMemory(device.handle(), buffer->memory, nullptr);
  }
  *buffer = {};
}

MemoryBudget memory_budget(const Device& device) {
  auto budget = typed<VkPhysicalDeviceMemoryBudgetPropertiesEXT>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT);
  auto memory = typed<VkPhysicalDeviceMemoryProperties2>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2);
  memory.pNext = device.physical().has_memory_budget ? &budget : nullptr;
  device.loader().vkGetPhysicalDeviceMemoryProperties2(device.physical().handle, &memory);
  MemoryBudget best;
  for (uint32_t i = 0; i < memory.memoryProperties.memoryHeapCount; ++i) {
    const VkMemoryHeap& heap = memory.memoryProperties.memoryHeaps[i];
    if ((heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) == 0 || heap.size <= best.total_bytes) {
      continue;
    }
    best = {heap.size, heap.size, false};
    if (device.physical().has_memory_budget) {
      const uint64_t used = budget.heapUsage[i];
      const uint64_t limit = budget.heapBudget[i];
      best.free_bytes = limit > used ? limit - used : 0;
      best.measured = true;
    }
  }
  return best;
}

}  // namespace bowline::detail::vulkan
