#include "device/fork.h"

#include <atomic>

#include "base/threads.h"

namespace bowline::detail::device {
namespace {

std::atomic<uint32_t> count{0};

}  // namespace

uint32_t forks() {
  static const bool registered = [] {
    call_after_fork([] { count.fetch_add(1); });
    return true;
  }();
  static_cast<void>(registered);
  return count.load(std::memory_order_relaxed);
}

}  // namespace bowline::detail::device
