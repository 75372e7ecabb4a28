#include "base/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#ifdef __APPLE__
#include <mach/mach.h>
#endif

namespace bowline {
namespace {

// Maps memory at `wanted` if that is free, else elsewhere. Returns null if there is no memory.
std::byte* map_at(void* wanted, size_t bytes) {
  void* const data =
      mmap(wanted, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

constexpr size_t kHugePage = size_t{2} << 20;

// Maps memory and asks for huge pages, which reduce TLB misses. If the addresses below are free, it
// begins at a multiple of 2 MiB. The rest behind the last whole huge page has small pages.
std::byte* map_huge_pages(size_t bytes) {
  std::byte* data = map_at(nullptr, bytes);
#ifdef MADV_HUGEPAGE
  const size_t inside = reinterpret_cast<uintptr_t>(data) % kHugePage;
  if (inside != 0) {
    munmap(data, bytes);
    data = map_at(data - inside, bytes);
  }
  if (data != nullptr) {
    (void)madvise(data, bytes, MADV_HUGEPAGE);
  }
#endif
  return data;
}

}  // namespace

uint64_t total_memory() { return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * page_bytes(); }

#ifdef __APPLE__
uint64_t available_memory() {
  vm_statistics64_data_t pages{};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  const auto to = reinterpret_cast<host_info64_t>(&pages);
  const bool known =
      host_statistics64(mach_host_self(), HOST_VM_INFO64, to, &count) == KERN_SUCCESS;
  return known ? (uint64_t{pages.free_count} + pages.inactive_count) * page_bytes() : 0;
}
#else
uint64_t available_memory() {
  uint64_t available = static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) * page_bytes();
  // Includes the page cache, which the kernel frees on demand.
  if (std::FILE* file = std::fopen("/proc/meminfo", "re"); file != nullptr) {
    char line[128];
    unsigned long long kib = 0;
    while (std::fgets(line, sizeof(line), file) != nullptr) {
      if (std::sscanf(line, "MemAvailable: %llu kB", &kib) == 1) {
        available = uint64_t{kib} * 1024;
      }
    }
    (void)std::fclose(file);
  }
  return available;
}
#endif

// posix_memalign and not aligned_alloc, which Android has since API level 28 only.
std::byte* allocate_aligned(size_t alignment, size_t bytes) {
  void* data = nullptr;
  const size_t least = std::max(alignment, sizeof(void*));
  return posix_memalign(&data, least, bytes) == 0 ? static_cast<std::byte*>(data) : nullptr;
}
void free_aligned(std::byte* data) { std::free(data); }

std::byte* map_memory(size_t bytes) {
  return bytes < kHugePage ? map_at(nullptr, bytes) : map_huge_pages(bytes);
}
void unmap_memory(std::byte* data, size_t bytes) { munmap(data, bytes); }

uint64_t page_bytes() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }
uint64_t mapping_alignment() { return page_bytes(); }

}  // namespace bowline
