// The memory of the machine. posix/, windows/ and wasi/ define these functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bowline {

// The bytes of memory that the machine has, and those that are free or that the system frees on
// demand. WebAssembly: those of the 4 GiB that a program can address.
uint64_t total_memory();
uint64_t available_memory();

// Returns memory from malloc or one of its relatives, or null if there is none.
std::byte* allocate_aligned(size_t alignment, size_t bytes);
void free_aligned(std::byte* data);

// Returns pages of zeros, or null if there is no memory. Pages that nobody touches cost nothing,
// and freeing returns the memory to the system, where the system can do that.
std::byte* map_memory(size_t bytes);
void unmap_memory(std::byte* data, size_t bytes);

// The size of a page, and the multiple at which the mapping of a file may begin.
uint64_t page_bytes();
uint64_t mapping_alignment();

}  // namespace bowline
