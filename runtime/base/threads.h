// Threads and cores. posix/, windows/ and wasi/ define these functions. The standard library throws
// an exception if a thread cannot start, and has no threads on WebAssembly.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace bowline {

// Names a thread that runs. Null: no thread.
using ThreadId = const void*;

inline ThreadId this_thread() {
  static thread_local char place;
  return &place;
}

// Starts run(argument) in a thread. Returns null if the system cannot.
struct Thread;
Thread* start_thread(void (*run)(void*), void* argument);
// Waits for the end of the thread and frees the object.
void join_thread(Thread* thread);
// Lets the thread end by itself. Frees the object.
void detach_thread(Thread* thread);
void sleep_for(std::chrono::nanoseconds time);
// Processor time of the calling thread since some moment. Where the system does not measure it in
// microseconds (Windows, WebAssembly), the time of a clock that also counts waits.
std::chrono::nanoseconds processor_time();

// The number of cores that the process may use: 1 or more.
size_t usable_cores();
// Whether place_thread() has an effect.
bool can_place_threads();
bool may_run_on(int core);
// A sentence: where a user sees the cores that the process may use.
std::string_view where_cores_are_listed();
// Restricts the calling thread to the cores, if any, and lowers its priority by `nice`, from 0 to
// 19. A failure leaves the thread as it is.
void place_thread(std::span<const int> cores, int nice);

// Registers a function that a child process calls after fork(). Has no effect where there is no
// fork(), or if memory is exhausted.
void call_after_fork(void (*function)());

}  // namespace bowline
