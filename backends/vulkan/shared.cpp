// Memory and semaphores that the device shares with the program and with other processes.
#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <unistd.h>
#define BOWLINE_HAS_DESCRIPTORS 1
#endif

#include "open_device.h"

namespace bowline::detail::vulkan {
namespace {

// A second descriptor of the same object. A driver takes it, so that the caller keeps the first one
// until all has succeeded.
Result<int> doubled(int fd) {
#ifdef BOWLINE_HAS_DESCRIPTORS
  const int second = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
  BOWLINE_REQUIRE(second >= 0, "Descriptor {} is not valid.", fd);
  return second;
#else
  return Status(Code::unsupported, format("Descriptor {} cannot be used on this system.", fd));
#endif
}

void close_descriptor(int fd) {
#ifdef BOWLINE_HAS_DESCRIPTORS
  (void)close(fd);
#else
  (void)fd;
#endif
}

// A number that does not fit into a pointer is a uint64_t on all systems.
template <class Handle>
Handle handle_of(uint64_t number) {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<Handle>(static_cast<uintptr_t>(number));
  } else {
    return number;
  }
}

constexpr auto kSemaphoreType = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT;

}  // namespace

Result<Buffer> OpenVulkan::shared_buffer(const device::MemoryImport& memory) {
  using Kind = device::MemoryImport::Kind;
  Buffer buffer;
  if (memory.kind == Kind::vulkan_of_program) {
    BOWLINE_REQUIRE_CODE(
        program_.has_value(), Code::unsupported,
        "A VkBuffer of the program belongs to a VkDevice of the program. Open that "
        "device with adopt_vulkan().");
    BOWLINE_REQUIRE(memory.handle != 0, "The VkBuffer is null.");
    BOWLINE_REQUIRE(memory.offset % 4 == 0,
                    "The offset in the VkBuffer is {}. It must be a multiple of 4.", memory.offset);
    buffer.handle = handle_of<VkBuffer>(memory.handle);
    buffer.offset = memory.offset;
    buffer.bytes = memory.bytes;
    buffer.of_program = true;
    return buffer;
  }
  BOWLINE_REQUIRE_CODE(memory.kind != Kind::host && memory.kind != Kind::cuda_of_program,
                       Code::unsupported,
                       "The program cannot address the memory of a Vulkan device.");
  const bool is_dma_buf = memory.type == ExternalHandle::dma_buf;
  const PhysicalDevice& physical = device_->physical();
  BOWLINE_REQUIRE_CODE(is_dma_buf ? physical.has_dma_buf : physical.has_memory_fd,
                       Code::unsupported,
                       "The Vulkan device has no extension {}, or the program did not enable it.",
                       is_dma_buf ? VK_EXT_EXTERNAL_MEMORY_DMA_BUF_EXTENSION_NAME
                                  : VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME);
  Sharing sharing;
  sharing.type = is_dma_buf ? VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT
                            : VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
  if (memory.kind == Kind::descriptor) {
    BOWLINE_REQUIRE(memory.bytes <= memory.allocation_bytes,
                    "A buffer of {} bytes does not fit into an allocation of {} bytes.",
                    memory.bytes, memory.allocation_bytes);
    BOWLINE_TRY_ASSIGN(sharing.fd, doubled(memory.fd));
    sharing.allocation_bytes = memory.allocation_bytes;
  }
  VkResult result = VK_SUCCESS;
  const bool can = can_share(*device_, sharing);
  if (can && is_dma_buf && sharing.fd >= 0) {
    auto properties = typed<VkMemoryFdPropertiesKHR>(VK_STRUCTURE_TYPE_MEMORY_FD_PROPERTIES_KHR);
    result = device_->call().vkGetMemoryFdPropertiesKHR(device_->handle(), sharing.type, sharing.fd,
                                                        &properties);
    sharing.memory_types = properties.memoryTypeBits;
  }
  if (can && result == VK_SUCCESS) {
    result = create_shared_buffer(*device_, memory.bytes, sharing, &buffer);
  }
  // After a success the driver owns the descriptor. After a failure it may: vkAllocateMemory() may
  // have succeeded, and the buffer was destroyed with its memory.
  if (sharing.fd >= 0 && (!can || result == VK_ERROR_INVALID_EXTERNAL_HANDLE)) {
    close_descriptor(sharing.fd);
  }
  BOWLINE_REQUIRE_CODE(can, Code::unsupported, "The Vulkan driver cannot {} buffers as {}.",
                       sharing.fd >= 0 ? "import" : "export",
                       is_dma_buf ? "dma-buf" : "opaque descriptors");
  BOWLINE_REQUIRE(
      result != VK_ERROR_INVALID_EXTERNAL_HANDLE,
      "Descriptor {} does not have memory for a buffer of {} bytes in an allocation of {} bytes.",
      memory.fd, memory.bytes, memory.allocation_bytes);
  BOWLINE_TRY(check(result, "making a shared buffer", memory.bytes));
  return buffer;
}

Result<device::Buffer> OpenVulkan::import_memory(const device::MemoryImport& memory) {
  BOWLINE_TRY(check_alive());
  BOWLINE_TRY_ASSIGN(const Buffer buffer, shared_buffer(memory));
  const uint64_t id = next_id_++;
  buffers_.emplace(id, buffer);
  if (memory.kind == device::MemoryImport::Kind::descriptor) {
    close_descriptor(memory.fd);
  }
  return device::Buffer{id};
}

Result<std::pair<int, uint64_t>> OpenVulkan::export_memory(device::Buffer buffer) {
  BOWLINE_TRY(check_alive());
  BOWLINE_TRY_ASSIGN(const Buffer* found, find(buffer, 0, 0));
  BOWLINE_REQUIRE(found->exportable_as != 0,
                  "The buffer is not from create_exportable(), so it has no descriptor.");
  auto info = typed<VkMemoryGetFdInfoKHR>(VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR);
  info.memory = found->memory;
  info.handleType = static_cast<VkExternalMemoryHandleTypeFlagBits>(found->exportable_as);
  int fd = -1;
  BOWLINE_TRY(
      check(device_->call().vkGetMemoryFdKHR(device_->handle(), &info, &fd), "exporting a buffer"));
  return std::pair{fd, found->allocated_bytes};
}

Result<SharedSemaphore> OpenVulkan::shared_semaphore(const device::SemaphoreImport& wanted) {
  using Kind = device::SemaphoreImport::Kind;
  SharedSemaphore semaphore;
  semaphore.is_timeline = wanted.timeline;
  if (wanted.kind == Kind::of_program) {
    BOWLINE_REQUIRE_CODE(program_.has_value(), Code::unsupported,
                         "A VkSemaphore of the program belongs to a VkDevice of the program. Open "
                         "that device with adopt_vulkan().");
    BOWLINE_REQUIRE(wanted.handle != 0, "The VkSemaphore is null.");
    semaphore.handle = handle_of<VkSemaphore>(wanted.handle);
    semaphore.of_program = true;
    return semaphore;
  }
  BOWLINE_REQUIRE_CODE(device_->physical().has_semaphore_fd, Code::unsupported,
                       "The Vulkan device has no extension {}, or the program did not enable it.",
                       VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME);
  auto type = typed<VkSemaphoreTypeCreateInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO);
  type.semaphoreType = wanted.timeline ? VK_SEMAPHORE_TYPE_TIMELINE : VK_SEMAPHORE_TYPE_BINARY;
  auto query = typed<VkPhysicalDeviceExternalSemaphoreInfo>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_SEMAPHORE_INFO);
  query.pNext = &type;
  query.handleType = kSemaphoreType;
  auto properties =
      typed<VkExternalSemaphoreProperties>(VK_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_PROPERTIES);
  loader_.vkGetPhysicalDeviceExternalSemaphoreProperties(device_->physical().handle, &query,
                                                         &properties);
  const bool imports = wanted.kind == Kind::descriptor;
  const VkExternalSemaphoreFeatureFlags feature =
      imports ? VK_EXTERNAL_SEMAPHORE_FEATURE_IMPORTABLE_BIT
              : VK_EXTERNAL_SEMAPHORE_FEATURE_EXPORTABLE_BIT;
  BOWLINE_REQUIRE_CODE((properties.externalSemaphoreFeatures & feature) != 0, Code::unsupported,
                       "The Vulkan driver cannot {} {} semaphores as opaque descriptors.",
                       imports ? "import" : "export", wanted.timeline ? "timeline" : "binary");
  auto exported =
      typed<VkExportSemaphoreCreateInfo>(VK_STRUCTURE_TYPE_EXPORT_SEMAPHORE_CREATE_INFO);
  exported.handleTypes = kSemaphoreType;
  exported.pNext = &type;
  auto info = typed<VkSemaphoreCreateInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO);
  info.pNext = imports ? static_cast<const void*>(&type) : &exported;
  int fd = -1;
  if (imports) {
    BOWLINE_TRY_ASSIGN(fd, doubled(wanted.fd));
  }
  const DeviceFunctions& vk = device_->call();
  VkResult result = vk.vkCreateSemaphore(device_->handle(), &info, nullptr, &semaphore.handle);
  if (result == VK_SUCCESS && imports) {
    auto import = typed<VkImportSemaphoreFdInfoKHR>(VK_STRUCTURE_TYPE_IMPORT_SEMAPHORE_FD_INFO_KHR);
    import.semaphore = semaphore.handle;
    import.handleType = kSemaphoreType;
    import.fd = fd;
    result = vk.vkImportSemaphoreFdKHR(device_->handle(), &import);
  }
  if (result != VK_SUCCESS && imports) {
    close_descriptor(fd);
    destroy_semaphore(semaphore);
  }
  BOWLINE_REQUIRE(result != VK_ERROR_INVALID_EXTERNAL_HANDLE,
                  "Descriptor {} is not a {} semaphore.", wanted.fd,
                  wanted.timeline ? "timeline" : "binary");
  BOWLINE_TRY(check(result, "making a shared semaphore"));
  semaphore.is_exportable = !imports;
  return semaphore;
}

Result<uint64_t> OpenVulkan::import_semaphore(const device::SemaphoreImport& wanted) {
  BOWLINE_TRY(check_alive());
  BOWLINE_TRY_ASSIGN(const SharedSemaphore semaphore, shared_semaphore(wanted));
  const uint64_t number = next_id_++;
  semaphores_.emplace(number, semaphore);
  if (wanted.kind == device::SemaphoreImport::Kind::descriptor) {
    close_descriptor(wanted.fd);
  }
  return number;
}

Result<SharedSemaphore> OpenVulkan::find_semaphore(uint64_t number) const {
  const auto found = semaphores_.find(number);
  BOWLINE_REQUIRE(found != semaphores_.end(), "There is no semaphore {}.", number);
  return found->second;
}

Result<int> OpenVulkan::export_semaphore(uint64_t number) {
  BOWLINE_TRY(check_alive());
  BOWLINE_TRY_ASSIGN(const SharedSemaphore semaphore, find_semaphore(number));
  BOWLINE_REQUIRE(semaphore.is_exportable,
                  "The semaphore is not from create_exportable(), so it has no descriptor.");
  auto info = typed<VkSemaphoreGetFdInfoKHR>(VK_STRUCTURE_TYPE_SEMAPHORE_GET_FD_INFO_KHR);
  info.semaphore = semaphore.handle;
  info.handleType = kSemaphoreType;
  int fd = -1;
  BOWLINE_TRY(check(device_->call().vkGetSemaphoreFdKHR(device_->handle(), &info, &fd),
                    "exporting a semaphore"));
  return fd;
}

void OpenVulkan::free_semaphore(uint64_t number) {
  const auto found = semaphores_.find(number);
  if (found == semaphores_.end()) {
    return;
  }
  if (!lost_) {
    (void)check(device_->wait_all(), "waiting before a semaphore is freed");
  }
  destroy_semaphore(found->second);
  semaphores_.erase(found);
}

void OpenVulkan::destroy_semaphore(const SharedSemaphore& semaphore) {
  if (!semaphore.of_program && semaphore.handle != VK_NULL_HANDLE && device_->hung() == nullptr) {
    device_->call().vkDestroySemaphore(device_->handle(), semaphore.handle, nullptr);
  }
}

Status OpenVulkan::wait_semaphore(uint64_t number, uint64_t value) {
  BOWLINE_TRY(check_alive());
  BOWLINE_TRY_ASSIGN(const SharedSemaphore semaphore, find_semaphore(number));
  return check(device_->submit_semaphore(semaphore, value, true), "waiting for a semaphore");
}

Status OpenVulkan::signal_semaphore(uint64_t number, uint64_t value) {
  BOWLINE_TRY(check_alive());
  BOWLINE_TRY_ASSIGN(const SharedSemaphore semaphore, find_semaphore(number));
  if (semaphore.is_timeline) {
    uint64_t now = 0;
    BOWLINE_TRY(
        check(device_->call().vkGetSemaphoreCounterValue(device_->handle(), semaphore.handle, &now),
              "reading a semaphore"));
    BOWLINE_REQUIRE(value > now, "A timeline semaphore has the value {}, so it cannot become {}.",
                    now, value);
  }
  return check(device_->submit_semaphore(semaphore, value, false), "signalling a semaphore");
}

}  // namespace bowline::detail::vulkan
