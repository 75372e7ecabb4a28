#include "base/memory.h"

#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <malloc.h>
#include <windows.h>

namespace bowline {
namespace {

MEMORYSTATUSEX memory_status() {
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof status;
  (void)GlobalMemoryStatusEx(&status);
  return status;
}

SYSTEM_INFO system_info() {
  SYSTEM_INFO info{};
  GetSystemInfo(&info);
  return info;
}

}  // namespace

uint64_t total_memory() { return memory_status().ullTotalPhys; }
uint64_t available_memory() { return memory_status().ullAvailPhys; }

std::byte* allocate_aligned(size_t alignment, size_t bytes) {
  return static_cast<std::byte*>(_aligned_malloc(bytes, alignment));
}
void free_aligned(std::byte* data) { _aligned_free(data); }

std::byte* map_memory(size_t bytes) {
  return static_cast<std::byte*>(
      VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE));
}
void unmap_memory(std::byte* data, size_t) { (void)VirtualFree(data, 0, MEM_RELEASE); }

uint64_t page_bytes() { return system_info().dwPageSize; }
uint64_t mapping_alignment() { return system_info().dwAllocationGranularity; }

}  // namespace bowline
