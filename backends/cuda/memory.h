// Blocks of device memory.
#pragma once

#include "cuda_status.h"
#include "device/backend.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

constexpr uint64_t kAlignment = 256;  // of cudaMalloc

// Memory of kind `io` has a copy in pinned host memory. Between submissions, the host copy is
// current: every graph starts by copying its inputs to the device and ends by copying its outputs
// back. The host therefore reads and writes without using the device.
struct Memory {
  std::byte* device = nullptr;
  std::byte* host = nullptr;  // null: kind `device`
  uint64_t bytes = 0;
  bool of_program = false;  // `device` is never freed

  // Errors  out_of_memory, with the bytes.
  static Result<std::unique_ptr<Memory>> allocate(uint64_t bytes, device::MemoryKind kind);
  // Uses memory of the program. `gpu`: the number of the device.
  // Errors  bad_argument: the bytes are not in the memory of the GPU.
  static Result<std::unique_ptr<Memory>> adopt(uint64_t address, uint64_t bytes, int gpu);
  Memory() = default;
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
};

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
