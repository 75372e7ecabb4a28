#include "failing_new.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace bowline::test {
namespace {

std::atomic<int> g_count = 0;
std::atomic<int> g_fail_at = 0;  // 0: no call fails
std::atomic<bool> g_all = false;
std::atomic<bool> g_failed = false;

void* obtain(std::size_t bytes, std::size_t alignment) {
  const int at = g_fail_at.load();
  const int call = ++g_count;
  if (at > 0 && (call == at || (g_all.load() && call > at))) {
    g_failed = true;
    return nullptr;
  }
  const std::size_t size = bytes == 0 ? 1 : bytes;
  return alignment <= alignof(std::max_align_t)
             ? std::malloc(size)
             : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* obtain_or_throw(std::size_t bytes, std::size_t alignment) {
  if (void* p = obtain(bytes, alignment)) {
    return p;
  }
  throw std::bad_alloc();
}

}  // namespace

void fail_allocation(int n, bool all) {
  g_count = 0;
  g_all = all;
  g_failed = false;
  g_fail_at = n;
}

bool allocations_succeed() {
  g_fail_at = 0;
  return g_failed;
}

int allocations_counted() { return g_count; }

}  // namespace bowline::test

using bowline::test::obtain;
using bowline::test::obtain_or_throw;

void* operator new(std::size_t n) { return obtain_or_throw(n, 0); }
void* operator new[](std::size_t n) { return obtain_or_throw(n, 0); }
void* operator new(std::size_t n, std::align_val_t a) {
  return obtain_or_throw(n, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t n, std::align_val_t a) {
  return obtain_or_throw(n, static_cast<std::size_t>(a));
}
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return obtain(n, 0); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return obtain(n, 0); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
