// A WebAssembly program has one linear memory. It grows, and never shrinks.
#include "base/memory.h"

#include <cstdlib>
#include <cstring>

namespace bowline {
namespace {

constexpr uint64_t kPage = uint64_t{64} << 10;

}  // namespace

uint64_t total_memory() { return uint64_t{1} << 32; }

// The memory that malloc() has free inside is not known.
uint64_t available_memory() { return total_memory() - __builtin_wasm_memory_size(0) * kPage; }

std::byte* allocate_aligned(size_t alignment, size_t bytes) {
  return static_cast<std::byte*>(std::aligned_alloc(alignment, bytes));
}
void free_aligned(std::byte* data) { std::free(data); }

std::byte* map_memory(size_t bytes) {
  constexpr size_t kAlignment = 64;
  if (bytes > SIZE_MAX - kAlignment) {
    return nullptr;
  }
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::byte* const data = allocate_aligned(kAlignment, rounded);
  if (data != nullptr) {
    std::memset(data, 0, bytes);
  }
  return data;
}
void unmap_memory(std::byte* data, size_t) { free_aligned(data); }

uint64_t page_bytes() { return kPage; }
uint64_t mapping_alignment() { return kPage; }

}  // namespace bowline
