#include "base/threads.h"

#include <pthread.h>
#include <time.h>

#ifdef __linux__
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <memory>
#include <new>
#include <thread>

namespace bowline {

struct Thread {
  void (*run)(void*) = nullptr;
  void* argument = nullptr;
  pthread_t handle{};
};

Thread* start_thread(void (*run)(void*), void* argument) {
  std::unique_ptr<Thread> thread(new (std::nothrow) Thread{run, argument, {}});
  const auto enter = [](void* own) -> void* {
    const Thread* const t = static_cast<const Thread*>(own);
    t->run(t->argument);
    return nullptr;
  };
  if (thread == nullptr || pthread_create(&thread->handle, nullptr, enter, thread.get()) != 0) {
    return nullptr;
  }
  return thread.release();
}

void join_thread(Thread* thread) {
  pthread_join(thread->handle, nullptr);
  delete thread;
}

void detach_thread(Thread* thread) {
  pthread_detach(thread->handle);
  delete thread;
}

void sleep_for(std::chrono::nanoseconds time) { std::this_thread::sleep_for(time); }

std::chrono::nanoseconds processor_time() {
  timespec time{};
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

void call_after_fork(void (*function)()) { (void)pthread_atfork(nullptr, nullptr, function); }

#ifdef __linux__

size_t usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    return static_cast<size_t>(std::max(1, CPU_COUNT(&set)));
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

bool can_place_threads() { return true; }

bool may_run_on(int core) {
  cpu_set_t usable;
  return sched_getaffinity(0, sizeof usable, &usable) != 0 ||
         (core >= 0 && core < CPU_SETSIZE && CPU_ISSET(static_cast<size_t>(core), &usable));
}

std::string_view where_cores_are_listed() {
  return "See the line Cpus_allowed_list in /proc/self/status.";
}

void place_thread(std::span<const int> cores, int nice) {
  if (!cores.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : cores) {
      CPU_SET(static_cast<size_t>(core), &set);
    }
    (void)sched_setaffinity(0, sizeof set, &set);
  }
  if (nice > 0) {
    const auto self = static_cast<id_t>(syscall(SYS_gettid));
    (void)setpriority(PRIO_PROCESS, self, std::min(19, getpriority(PRIO_PROCESS, 0) + nice));
  }
}

#else

size_t usable_cores() { return std::max(1u, std::thread::hardware_concurrency()); }
bool can_place_threads() { return false; }
bool may_run_on(int) { return false; }
std::string_view where_cores_are_listed() { return ""; }
void place_thread(std::span<const int>, int) {}

#endif

}  // namespace bowline
