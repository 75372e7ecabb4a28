// A fair mutex: threads get it in the order of their lock() calls.
#pragma once

#include <atomic>
#include <cstdint>

namespace bowline::detail::device {

// A ticket lock (Mellor-Crummey and Scott 1991, "Algorithms for Scalable Synchronization on
// Shared-Memory Multiprocessors"). A std::mutex may go to the same thread again and again: a model
// in training could then block a model that serves requests on the same device.
class Turns {
 public:
  void lock() {
    const uint32_t ticket = next_.fetch_add(1);
    for (uint32_t now = now_.load(); now != ticket; now = now_.load()) {
      now_.wait(now);
    }
  }
  void unlock() {
    now_.fetch_add(1);
    now_.notify_all();
  }
  // The number of threads that wait for the mutex.
  uint32_t waiting() const {
    const uint32_t inside_or_waiting = next_.load() - now_.load();
    return inside_or_waiting == 0 ? 0 : inside_or_waiting - 1;
  }

 private:
  std::atomic<uint32_t> next_{0};
  std::atomic<uint32_t> now_{0};
};

}  // namespace bowline::detail::device
