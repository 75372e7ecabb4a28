#include "base/threads.h"

#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <process.h>
#include <windows.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <new>

namespace bowline {

struct Thread {
  void (*run)(void*) = nullptr;
  void* argument = nullptr;
  HANDLE handle = nullptr;
};

namespace {

// A process of one group of processors has at most 64. Those of other groups are not used.
DWORD_PTR usable_mask() {
  DWORD_PTR own = 0, machine = 0;
  return GetProcessAffinityMask(GetCurrentProcess(), &own, &machine) != 0 ? own : 0;
}

unsigned __stdcall enter(void* own) {
  const Thread* const t = static_cast<const Thread*>(own);
  t->run(t->argument);
  return 0;
}

}  // namespace

Thread* start_thread(void (*run)(void*), void* argument) {
  std::unique_ptr<Thread> thread(new (std::nothrow) Thread{run, argument, nullptr});
  if (thread == nullptr) {
    return nullptr;
  }
  const uintptr_t handle = _beginthreadex(nullptr, 0, enter, thread.get(), 0, nullptr);
  thread->handle = reinterpret_cast<HANDLE>(handle);
  return handle == 0 ? nullptr : thread.release();
}

void join_thread(Thread* thread) {
  (void)WaitForSingleObject(thread->handle, INFINITE);
  (void)CloseHandle(thread->handle);
  delete thread;
}

void detach_thread(Thread* thread) {
  (void)CloseHandle(thread->handle);
  delete thread;
}

void sleep_for(std::chrono::nanoseconds time) {
  constexpr auto kMost = std::chrono::milliseconds(INFINITE - 1);
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(time);
  Sleep(static_cast<DWORD>(std::clamp(ms, std::chrono::milliseconds(0), kMost).count()));
}

std::chrono::nanoseconds processor_time() {
  return std::chrono::steady_clock::now().time_since_epoch();
}

size_t usable_cores() {
  return static_cast<size_t>(std::max(1, std::popcount(uint64_t{usable_mask()})));
}

bool can_place_threads() { return true; }

bool may_run_on(int core) { return core >= 0 && core < 64 && (usable_mask() >> core & 1) != 0; }

std::string_view where_cores_are_listed() {
  return "The task manager shows them (Details, Set affinity).";
}

void place_thread(std::span<const int> cores, int nice) {
  DWORD_PTR mask = 0;
  for (const int core : cores) {
    mask |= DWORD_PTR{1} << core;
  }
  if (mask != 0) {
    (void)SetThreadAffinityMask(GetCurrentThread(), mask);
  }
  if (nice > 0) {
    constexpr int kMuch = 10;  // half of the range
    (void)SetThreadPriority(GetCurrentThread(),
                            nice < kMuch ? THREAD_PRIORITY_BELOW_NORMAL : THREAD_PRIORITY_LOWEST);
  }
}

void call_after_fork(void (*)()) {}

}  // namespace bowline
