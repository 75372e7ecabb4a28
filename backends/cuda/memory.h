// Blocks of device memory.
#pragma once

#include "cuda_status.h"
#include "device/backend.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// Memory of kind `io` has a twin in pinned host memory. Between submissions the twin holds the
// content: every graph starts with copies of what it reads and ends with copies of what it wrote,
// so the host reads and writes without touching the device.
struct Memory {
  std::byte* device = nullptr;
  std::byte* host = nullptr;  // null: kind `device`
  uint64_t bytes = 0;

  // Errors  out_of_memory, with the bytes.
  static Result<std::unique_ptr<Memory>> allocate(uint64_t bytes, device::MemoryKind kind);
  Memory() = default;
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
};

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
