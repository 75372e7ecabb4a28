// Memory and semaphores that a device shares with the program or with other processes.
#pragma once

#include "bowline/external.h"
#include "device/device.h"

namespace bowline::detail::device {

struct MemoryImport {
  enum class Kind : uint8_t {
    vulkan_of_program,  // `handle` is a VkBuffer, and its bytes from `offset` on are used
    cuda_of_program,    // `handle` is a CUdeviceptr
    exportable,         // new memory
    descriptor,         // memory behind `fd`, with `allocation_bytes` bytes
    host,               // new memory of the process; its address is stored in `*address`
  };
  bool is_of_program() const {
    return kind == Kind::vulkan_of_program || kind == Kind::cuda_of_program;
  }
  Kind kind = Kind::exportable;
  ExternalHandle type = ExternalHandle::opaque_fd;
  uint64_t handle = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  int fd = -1;
  uint64_t allocation_bytes = 0;
  std::byte** address = nullptr;
};

struct SemaphoreImport {
  enum class Kind : uint8_t {
    of_program,  // `handle` is a VkSemaphore
    exportable,  // a new one
    descriptor,  // behind `fd`
  };
  Kind kind = Kind::exportable;
  uint64_t handle = 0;
  int fd = -1;
  bool timeline = false;
};

}  // namespace bowline::detail::device
