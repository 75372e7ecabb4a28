#include "memory.h"

#include <cstring>

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

Result<std::unique_ptr<Memory>> Memory::allocate(uint64_t bytes, device::MemoryKind kind) {
  auto memory = std::make_unique<Memory>();
  memory->bytes = bytes;
  void* block = nullptr;
  const cudaError_t error = cudaMalloc(&block, bytes == 0 ? 1 : bytes);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    size_t available = 0;
    size_t total = 0;
    BOWLINE_CUDA(cudaMemGetInfo(&available, &total), "ask for the free memory");
    return Status(Code::out_of_memory,
                  format("{} bytes were requested, but the GPU has {} of {} left.", bytes,
                         uint64_t{available}, uint64_t{total}));
  }
  BOWLINE_CUDA(error, "allocate {} bytes", bytes);
  memory->device = static_cast<std::byte*>(block);
  if (kind == device::MemoryKind::io) {
    void* host = nullptr;
    BOWLINE_CUDA(cudaHostAlloc(&host, bytes == 0 ? 1 : bytes, cudaHostAllocDefault),
                 "pin {} bytes of host memory", bytes);
    memory->host = static_cast<std::byte*>(host);
    std::memset(host, 0, bytes);
  }
  return memory;
}

Result<std::unique_ptr<Memory>> Memory::adopt(uint64_t address, uint64_t bytes, int gpu) {
  BOWLINE_REQUIRE(address != 0, "The CUdeviceptr is 0.");
  BOWLINE_REQUIRE(bytes <= UINT64_MAX - address, "{} bytes from the address {} on are too many.",
                  bytes, address);
  for (const uint64_t at : {address, address + (bytes == 0 ? 0 : bytes - 1)}) {
    cudaPointerAttributes found = {};
    const cudaError_t error = cudaPointerGetAttributes(&found, reinterpret_cast<void*>(at));
    if (error != cudaSuccess) {
      (void)cudaGetLastError();
    }
    BOWLINE_REQUIRE(
        error == cudaSuccess &&
            (found.type == cudaMemoryTypeDevice || found.type == cudaMemoryTypeManaged) &&
            (found.type == cudaMemoryTypeManaged || found.device == gpu),
        "The address {} is not in the memory of CUDA device {}. The buffer has {} bytes from "
        "{} on.",
        at, gpu, bytes, address);
  }
  auto memory = std::make_unique<Memory>();
  memory->device = reinterpret_cast<std::byte*>(address);
  memory->bytes = bytes;
  memory->of_program = true;
  return memory;
}

Memory::~Memory() {
  if (device != nullptr && !of_program) {
    (void)cudaFree(device);
  }
  if (host != nullptr) {
    (void)cudaFreeHost(host);
  }
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
