// Work sharing for the CPU kernels: a small pool of threads that spin briefly between two jobs.
//
// Rule for kernels: tasks partition the outputs. If a kernel sums over a partition, the number of
// blocks and their order do not depend on the number of threads. Results therefore have the same
// bits for any number of threads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "base/threads.h"

namespace bowline::detail::cpu {

// What the program chose (DeviceOptions). The defaults cost nothing.
struct ThreadOptions {
  std::vector<int> cores;
  int nice = 0;
  double max_load = 1;
  std::function<void(size_t count, const std::function<void(size_t)>& task)> executor;
};

// parallel_for throws it in the caller's thread if the work was stopped.
struct Stopped {};

// Limits the share of the time in which a thread computes.
class Duty {
 public:
  // Call it when the thread starts to compute.
  void begin() { began_ = processor_time(); }
  // Call it often while the thread computes. Sleeps if the thread has worked for a while. Waiting,
  // also for a core that others use, is not work.
  void rest(double max_load);

 private:
  std::chrono::nanoseconds began_{};
  std::chrono::nanoseconds worked_{};
};

// Threads   one caller at a time; a task must not call parallel_for.
// Owner     the pool owns its threads and joins them in its destructor.
class Threads {
 public:
  // `count` includes the caller; 0 counts as 1. If the system cannot create a thread, the pool is
  // smaller.
  explicit Threads(size_t count, ThreadOptions options = {});
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  size_t count() const { return workers_ + 1; }

  // While the flag is true, parallel_for throws Stopped, and tasks that did not begin never run.
  // Null: never. The caller sets it while no job runs.
  void set_stop(const std::atomic<bool>* asked) { asked_ = asked; }
  bool is_stopped() const { return asked_ != nullptr && asked_->load(std::memory_order_relaxed); }
  // For the thread that calls parallel_for: it computes from begin() on. rest() sleeps if max_load
  // demands it.
  void begin() {
    if (is_limited()) {
      duties_[0].begin();
    }
  }
  void rest() {
    if (is_limited()) {
      duties_[0].rest(options_.max_load);
    }
  }

  // Calls f(task, thread) for every task in 0 .. tasks - 1 and returns when all are done. `thread`
  // < count() is fixed within a task and selects the scratch memory. A call costs 1 to 2 us while
  // the pool spins, and allocates nothing. If a task throws (a failed allocation), parallel_for
  // rethrows in the caller's thread after the other tasks have ended.
  template <class F>
  void parallel_for(size_t tasks, F&& f) {
    using Function = std::remove_reference_t<F>;
    if (tasks <= 1 || workers_ == 0) {
      for (size_t task = 0; task < tasks; ++task) {
        before_task();
        f(task, size_t{0});
      }
      return;
    }
    Function* function = &f;
    run(
        tasks,
        [](const void* context, size_t task, size_t thread) {
          (**static_cast<Function* const*>(context))(task, thread);
        },
        &function);
  }

 private:
  using Call = void (*)(const void* context, size_t task, size_t thread);
  struct Worker {
    Threads* pool = nullptr;
    size_t thread = 0;
    Thread* handle = nullptr;
  };
  struct Lanes;

  bool is_limited() const { return options_.max_load < 1; }
  // For a task that the calling thread runs alone.
  void before_task() {
    if (asked_ != nullptr || is_limited()) {
      stop_or_rest();
    }
  }
  void stop_or_rest();
  void throw_if_stopped() const;
  void start_workers(size_t count);
  void run_in_executor();
  void run(size_t tasks, Call call, const void* context);
  void work(size_t thread);
  bool run_one(size_t thread);
  void finish();
  static void enter(void* worker);

  const ThreadOptions options_;
  size_t workers_ = 0;  // threads, or lanes of the executor, besides the caller
  std::unique_ptr<Worker[]> worker_;
  std::shared_ptr<Lanes> lanes_;  // of the executor
  std::function<void(size_t)> lane_;
  std::vector<Duty> duties_;  // by thread, if the load is limited
  const std::atomic<bool>* asked_ = nullptr;

  // The caller writes these members while no task is claimed; workers read them only after a claim.
  Call call_ = nullptr;
  const void* context_ = nullptr;
  int32_t tasks_ = 0;
  std::exception_ptr failure_;  // written by the first task that fails, read after all tasks
  std::atomic<bool> failed_{false};

  // Tasks that are not claimed yet. A claim decrements a positive value.
  alignas(64) std::atomic<int32_t> unclaimed_{0};
  alignas(64) std::atomic<int32_t> done_{0};
  std::atomic<bool> caller_sleeps_{false};
  // Changes with every job. Sleeping workers wait on it.
  alignas(64) std::atomic<uint32_t> epoch_{0};
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace bowline::detail::cpu
