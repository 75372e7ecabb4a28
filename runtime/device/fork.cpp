#include "device/fork.h"

#include <pthread.h>

#include <atomic>

namespace bowline::detail::device {
namespace {

std::atomic<uint32_t> count{0};

}  // namespace

uint32_t forks() {
  // Fails only if memory is exhausted. Then forks are not counted.
  static const int registered = pthread_atfork(nullptr, nullptr, [] { count.fetch_add(1); });
  static_cast<void>(registered);
  return count.load(std::memory_order_relaxed);
}

}  // namespace bowline::detail::device
