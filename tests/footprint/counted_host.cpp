// Intercepts malloc and mmap of the C library.
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "footprint/counted.h"

namespace bowline::test {

Counted& counted_host() {
  static constinit Counted counted;
  return counted;
}

namespace {

void* counted(void* block) {
  if (block != nullptr) {
    counted_host().add(static_cast<int64_t>(malloc_usable_size(block)));
  }
  return block;
}

void uncounted(void* block) {
  if (block != nullptr) {
    counted_host().add(-static_cast<int64_t>(malloc_usable_size(block)));
  }
}

}  // namespace
}  // namespace bowline::test

using bowline::test::counted;
using bowline::test::counted_host;
using bowline::test::uncounted;

extern "C" {

void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* block, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* block);

void* malloc(size_t bytes) { return counted(__libc_malloc(bytes)); }
void* calloc(size_t count, size_t bytes) { return counted(__libc_calloc(count, bytes)); }
void* realloc(void* block, size_t bytes) {
  uncounted(block);
  return counted(__libc_realloc(block, bytes));
}
void* memalign(size_t alignment, size_t bytes) {
  return counted(__libc_memalign(alignment, bytes));
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** block, size_t alignment, size_t bytes) {
  *block = memalign(alignment, bytes);
  return *block == nullptr ? ENOMEM : 0;
}
void free(void* block) {
  uncounted(block);
  __libc_free(block);
}

// A large malloc calls mmap inside of the C library, so nothing is counted twice. Pages of a file
// do not count as memory of this process.
void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) {
  const long result = syscall(SYS_mmap, at, bytes, protection, flags, file, offset);
  if (result != -1 && (flags & MAP_ANONYMOUS) != 0) {
    counted_host().add(static_cast<int64_t>(bytes));
  }
  return reinterpret_cast<void*>(result);
}
int munmap(void* at, size_t bytes) {
  const auto result = static_cast<int>(syscall(SYS_munmap, at, bytes));
  if (result == 0) {
    counted_host().add(-static_cast<int64_t>(bytes));
  }
  return result;
}

}  // extern "C"
