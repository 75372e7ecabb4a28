#include "memory.h"

#include <algorithm>

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

constexpr VkBufferUsageFlags kUsage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                      VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                      VK_BUFFER_USAGE_TRANSFER_DST_BIT;

VkBufferUsageFlags usage_of(const Device& device) {
  return device.physical().has_buffer_addresses ? kUsage | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT
                                                : kUsage;
}

// What the driver can do with shared buffers of a type (VkExternalMemoryFeatureFlagBits).
VkExternalMemoryFeatureFlags features_of(const Device& device, const Sharing& sharing) {
  auto info = typed<VkPhysicalDeviceExternalBufferInfo>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO);
  info.usage = usage_of(device);
  info.handleType = sharing.type;
  auto properties = typed<VkExternalBufferProperties>(VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES);
  device.loader().vkGetPhysicalDeviceExternalBufferProperties(device.physical().handle, &info,
                                                              &properties);
  return properties.externalMemoryProperties.externalMemoryFeatures;
}

// `sharing`: null if nobody else uses the memory.
VkResult bind_memory(Device& device, MemoryUse use, const Sharing* sharing, Buffer* buffer) {
  const DeviceFunctions& vk = device.call();
  VkMemoryRequirements needs{};
  vk.vkGetBufferMemoryRequirements(device.handle(), buffer->handle, &needs);
  const uint32_t allowed =
      needs.memoryTypeBits & (sharing == nullptr ? UINT32_MAX : sharing->memory_types);
  const MemoryType type = choose_type(device, allowed, use);
  const bool imports = sharing != nullptr && sharing->fd >= 0;
  if (imports && (type.index == UINT32_MAX || needs.size > sharing->allocation_bytes)) {
    return VK_ERROR_INVALID_EXTERNAL_HANDLE;
  }
  if (type.index == UINT32_MAX || needs.size > device.physical().max_allocation_bytes) {
    return VK_ERROR_OUT_OF_DEVICE_MEMORY;
  }
  auto flags = typed<VkMemoryAllocateFlagsInfo>(VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO);
  flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  auto info = typed<VkMemoryAllocateInfo>(VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO);
  auto dedicated =
      typed<VkMemoryDedicatedAllocateInfo>(VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO);
  dedicated.buffer = buffer->handle;
  auto exported = typed<VkExportMemoryAllocateInfo>(VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO);
  auto imported = typed<VkImportMemoryFdInfoKHR>(VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR);
  Chain chain;
  chain.add(&flags, device.physical().has_buffer_addresses);
  info.allocationSize = needs.size;
  if (sharing != nullptr) {
    exported.handleTypes = imported.handleType = sharing->type;
    imported.fd = sharing->fd;
    chain.add(&exported, !imports);
    chain.add(&imported, imports);
    chain.add(&dedicated,
              (features_of(device, *sharing) & VK_EXTERNAL_MEMORY_FEATURE_DEDICATED_ONLY_BIT) != 0);
    info.allocationSize = imports ? sharing->allocation_bytes : needs.size;
  }
  info.pNext = chain.first();
  info.memoryTypeIndex = type.index;
  VkResult result = vk.vkAllocateMemory(device.handle(), &info, nullptr, &buffer->memory);
  if (result != VK_SUCCESS) {
    return result;
  }
  buffer->allocated_bytes = info.allocationSize;
  result = vk.vkBindBufferMemory(device.handle(), buffer->handle, buffer->memory, 0);
  buffer->cached = (type.flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0;
  // A driver may be unable to map memory of others.
  if (result == VK_SUCCESS && sharing == nullptr && (type.flags & kHost) == kHost) {
    result = vk.vkMapMemory(device.handle(), buffer->memory, 0, VK_WHOLE_SIZE, 0, &buffer->mapped);
  }
  return result;
}

// Destroys a VkBuffer with its memory.
void destroy(Device& device, const Buffer& buffer) {
  if (buffer.handle != VK_NULL_HANDLE) {
    device.call().vkDestroyBuffer(device.handle(), buffer.handle, nullptr);
  }
  if (buffer.memory != VK_NULL_HANDLE) {
    device.call().vkFreeMemory(device.handle(), buffer.memory, nullptr);
  }
}

VkResult create(Device& device, uint64_t bytes, MemoryUse use, Buffer* buffer,
                const Sharing* sharing = nullptr) {
  buffer->bytes = bytes;
  auto external =
      typed<VkExternalMemoryBufferCreateInfo>(VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO);
  auto info = typed<VkBufferCreateInfo>(VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO);
  info.size = bytes == 0 ? 4 : (bytes + 3) / 4 * 4;  // fills and 32-bit loads need whole words
  info.usage = usage_of(device);
  if (sharing != nullptr) {
    external.handleTypes = sharing->type;
    info.pNext = &external;
    buffer->exportable_as = sharing->fd < 0 ? sharing->type : 0;
  }
  VkResult result = device.call().vkCreateBuffer(device.handle(), &info, nullptr, &buffer->handle);
  if (result == VK_SUCCESS) {
    result = bind_memory(device, use, sharing, buffer);
  }
  if (result != VK_SUCCESS) {
    destroy(device, *buffer);
    *buffer = {};
    return result;
  }
  if (!device.physical().has_buffer_addresses) {
    return VK_SUCCESS;
  }
  auto address = typed<VkBufferDeviceAddressInfo>(VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO);
  address.buffer = buffer->handle;
  buffer->address = device.call().vkGetBufferDeviceAddress(device.handle(), &address);
  return VK_SUCCESS;
}

// ---- parts of blocks

// Returns false if the block has no room.
bool take_part(Block& block, uint64_t bytes, Buffer* buffer) {
  const auto found =
      std::ranges::find_if(block.free, [&](const auto& range) { return range.second >= bytes; });
  if (found == block.free.end()) {
    return false;
  }
  const auto [offset, size] = *found;
  block.free.erase(found);
  if (size > bytes) {
    block.free.emplace(offset + bytes, size - bytes);
  }
  buffer->handle = block.whole.handle;
  buffer->offset = offset;
  buffer->allocated_bytes = bytes;
  buffer->mapped = block.whole.mapped == nullptr
                       ? nullptr
                       : static_cast<std::byte*>(block.whole.mapped) + offset;
  buffer->cached = block.whole.cached;
  return true;
}

void return_part(Block& block, uint64_t offset, uint64_t bytes) {
  const auto next = block.free.find(offset + bytes);
  if (next != block.free.end()) {
    bytes += next->second;
    block.free.erase(next);
  }
  const auto after = block.free.lower_bound(offset);
  if (after != block.free.begin() && std::prev(after)->first + std::prev(after)->second == offset) {
    std::prev(after)->second += bytes;
  } else {
    block.free.emplace(offset, bytes);
  }
}

bool serves(const Block& block, MemoryUse use) { return block.use == use || block.serves_all_uses; }

// A new block is as large as all blocks of this use together, so there are few.
VkResult add_block(Device& device, uint64_t bytes, MemoryUse use) {
  constexpr uint64_t kLeastBytes = 32u << 20;
  const uint64_t most = device.physical().max_buffer_bytes / kAlignment * kAlignment;
  if (bytes > most) {
    return VK_ERROR_OUT_OF_DEVICE_MEMORY;
  }
  uint64_t wanted = device.physical().shares_blocks ? kLeastBytes : 0;
  for (const Block& block : device.blocks()) {
    wanted += device.physical().shares_blocks && serves(block, use) ? block.whole.bytes : 0;
  }
  Block block{{}, use};
  VkResult result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
  for (const uint64_t size : {std::clamp(wanted, bytes, most), bytes}) {
    if (result != VK_SUCCESS) {
      result = create(device, size, use, &block.whole);
    }
  }
  if (result == VK_SUCCESS) {
    VkMemoryRequirements needs{};
    device.call().vkGetBufferMemoryRequirements(device.handle(), block.whole.handle, &needs);
    block.serves_all_uses = choose_type(device, needs.memoryTypeBits, MemoryUse::device).index ==
                            choose_type(device, needs.memoryTypeBits, MemoryUse::staging).index;
    block.free.emplace(0, block.whole.bytes);
    device.blocks().push_back(std::move(block));
  }
  return result;
}

VkResult create_part(Device& device, uint64_t bytes, MemoryUse use, Buffer* buffer) {
  const uint64_t size = std::max<uint64_t>((bytes + kAlignment - 1) / kAlignment, 1) * kAlignment;
  const auto is_taken = [&](Block& block) {
    return serves(block, use) && take_part(block, size, buffer);
  };
  VkResult result = VK_SUCCESS;
  if (std::ranges::none_of(device.blocks(), is_taken)) {
    result = add_block(device, size, use);
    if (result == VK_SUCCESS) {
      take_part(device.blocks().back(), size, buffer);
    }
  }
  buffer->bytes = bytes;
  return result;
}

void destroy_part(Device& device, const Buffer& buffer) {
  const auto block = std::ranges::find_if(
      device.blocks(), [&](const Block& b) { return b.whole.handle == buffer.handle; });
  return_part(*block, buffer.offset, buffer.allocated_bytes);
  if (block->free.begin()->second == block->whole.bytes) {
    destroy(device, block->whole);
    device.blocks().erase(block);
  }
}

}  // namespace

VkResult create_buffer(Device& device, uint64_t bytes, MemoryUse use, Buffer* buffer) {
  *buffer = {};
  return device.physical().has_buffer_addresses ? create(device, bytes, use, buffer)
                                                : create_part(device, bytes, use, buffer);
}

bool can_share(const Device& device, const Sharing& sharing) {
  const VkExternalMemoryFeatureFlags wanted = sharing.fd >= 0
                                                  ? VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT
                                                  : VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT;
  return (features_of(device, sharing) & wanted) != 0;
}

VkResult create_shared_buffer(Device& device, uint64_t bytes, const Sharing& sharing,
                              Buffer* buffer) {
  *buffer = {};
  return create(device, bytes, MemoryUse::device, buffer, &sharing);
}

void destroy_buffer(Device& device, Buffer* buffer) {
  if (device.hung() != nullptr) {
    return;
  }
  if (buffer->of_program) {
    *buffer = {};
    return;
  }
  if (buffer->handle != VK_NULL_HANDLE && buffer->memory == VK_NULL_HANDLE) {
    destroy_part(device, *buffer);
  } else {
    destroy(device, *buffer);
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
