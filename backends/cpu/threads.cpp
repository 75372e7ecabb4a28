#include "threads.h"

#include <algorithm>
#include <new>
#include <utility>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace bowline::detail::cpu {
namespace {

// About 50 us of spinning before a thread sleeps: longer than the gap between two operators of a
// plan.
constexpr int kSpins = 2000;

// Threads claim small tasks in runs, so that claims cost less than the work, but enough runs that
// all threads end together. The result does not depend on which thread runs a task.
constexpr int32_t kRunsPerThread = 16;
int32_t tasks_of_run(int32_t tasks, size_t threads) {
  return std::max(1, tasks / (kRunsPerThread * static_cast<int32_t>(threads)));
}
int32_t runs_of(int32_t tasks, size_t threads) {
  const int32_t run = tasks_of_run(tasks, threads);
  return (tasks + run - 1) / run;
}

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

struct Threads::Worker {
  Threads* pool = nullptr;
  size_t thread = 0;
  pthread_t handle{};
};

Threads::Threads(size_t count) {
  if (count <= 1) {
    return;
  }
  worker_.reset(new (std::nothrow) Worker[count - 1]);
  for (size_t i = 0; worker_ != nullptr && i < count - 1; ++i) {
    worker_[i].pool = this;
    worker_[i].thread = i + 1;
    if (pthread_create(&worker_[i].handle, nullptr, enter, &worker_[i]) != 0) {
      break;
    }
    workers_ = i + 1;
  }
}

Threads::~Threads() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (size_t i = 0; i < workers_; ++i) {
    pthread_join(worker_[i].handle, nullptr);
  }
}

void* Threads::enter(void* worker) {
  const Worker* w = static_cast<const Worker*>(worker);
  w->pool->work(w->thread);
  return nullptr;
}

bool Threads::run_one(size_t thread) {
  if (unclaimed_.load(std::memory_order_relaxed) <= 0) {
    return false;
  }
  const int32_t claim = unclaimed_.fetch_sub(1, std::memory_order_acq_rel);
  if (claim <= 0) {
    return false;
  }
  // Read before the run counts as done: afterwards the caller may start another job.
  const int32_t tasks = tasks_;
  const int32_t run = tasks_of_run(tasks, count()), runs = runs_of(tasks, count());
  const int32_t begin = (runs - claim) * run;
  for (int32_t task = begin; task < std::min(begin + run, tasks); ++task) {
#ifdef __cpp_exceptions
    try {
      call_(context_, static_cast<size_t>(task), thread);
    } catch (...) {
      if (!failed_.exchange(true)) {
        failure_ = std::current_exception();
      }
    }
#else
    call_(context_, static_cast<size_t>(task), thread);
#endif
  }
  if (done_.fetch_add(1) + 1 == runs && caller_sleeps_.load()) {
    done_.notify_one();
  }
  return true;
}

void Threads::work(size_t thread) {
  while (!stop_.load()) {
    const uint32_t epoch = epoch_.load();
    bool worked = false;
    for (int i = 0; i < kSpins && !worked; ++i) {
      worked = run_one(thread);
      if (!worked) {
        pause();
      }
    }
    if (worked) {
      continue;
    }
    // Announce the sleep first, then check again: either the caller sees the sleeper, or the
    // sleeper sees the new epoch.
    sleepers_.fetch_add(1);
    if (unclaimed_.load() <= 0) {
      epoch_.wait(epoch);
    }
    sleepers_.fetch_sub(1);
  }
}

void Threads::run(size_t tasks, Call call, const void* context) {
  call_ = call;
  context_ = context;
  tasks_ = static_cast<int32_t>(tasks);
  done_.store(0, std::memory_order_relaxed);
  const int32_t runs = runs_of(tasks_, count());
  unclaimed_.store(runs);
  epoch_.fetch_add(1);
  if (sleepers_.load() > 0) {
    epoch_.notify_all();
  }
  while (run_one(0)) {
  }
  for (int i = 0; i < kSpins; ++i) {
    if (done_.load(std::memory_order_acquire) == runs) {
      return finish();
    }
    pause();
  }
  // A worker lost its core, or a task is long. Sleeping frees the core for a worker.
  caller_sleeps_.store(true);
  for (int32_t done = done_.load(); done != runs; done = done_.load()) {
    done_.wait(done);
  }
  caller_sleeps_.store(false);
  finish();
}

// Rethrows the exception of a task in the caller's thread.
void Threads::finish() {
  if (failed_.load(std::memory_order_relaxed)) {
    failed_.store(false);
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

}  // namespace bowline::detail::cpu
