// A WebAssembly program has one thread here.
#include "base/threads.h"

#include <cerrno>
#include <ctime>

namespace bowline {

Thread* start_thread(void (*)(void*), void*) { return nullptr; }
void join_thread(Thread*) {}
void detach_thread(Thread*) {}

void sleep_for(std::chrono::nanoseconds time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  timespec left{};
  left.tv_sec = seconds.count();
  left.tv_nsec = static_cast<long>((time - seconds).count());
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

std::chrono::nanoseconds processor_time() {
  return std::chrono::steady_clock::now().time_since_epoch();
}

size_t usable_cores() { return 1; }
bool can_place_threads() { return false; }
bool may_run_on(int) { return false; }
std::string_view where_cores_are_listed() { return ""; }
void place_thread(std::span<const int>, int) {}
void call_after_fork(void (*)()) {}

}  // namespace bowline
