// Counts memory from outside: this program intercepts allocators and driver calls without any
// knowledge of plans. See counted_host.cpp and counted_vulkan.cpp.
#pragma once

#include <atomic>
#include <cstdint>

namespace bowline::test {

struct Counted {
  std::atomic<int64_t> live = 0;
  std::atomic<int64_t> peak = 0;

  void add(int64_t bytes) {
    const int64_t now = live += bytes;
    for (int64_t old = peak; now > old && !peak.compare_exchange_weak(old, now);) {
    }
  }
  // The peak starts at the live bytes.
  void reset() { peak = live.load(); }
};

// malloc and its family, operator new, and private pages of mmap.
Counted& counted_host();
// vkAllocateMemory.
Counted& counted_vulkan();

}  // namespace bowline::test
