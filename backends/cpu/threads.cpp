#include "threads.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

#include "base/boundary.h"
#include "device/turns.h"

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

// A lane runs tasks in a thread of the executor. A lane that the executor calls late, twice, or
// after the job has ended does nothing.
struct Threads::Lanes {
  device::Turns mutex;
  Threads* pool = nullptr;    // null: there is no job
  std::vector<bool> entered;  // by lane
  std::atomic<uint32_t> inside{0};

  // The copy of the pointer lets the object outlive the caller, which goes on after fetch_sub().
  static void run(std::shared_ptr<Lanes> own, size_t lane) {
    Lanes& lanes = *own;
    Threads* pool = nullptr;
    {
      const std::lock_guard lock(lanes.mutex);
      if (lanes.pool == nullptr || lane >= lanes.entered.size() || lanes.entered[lane]) {
        return;
      }
      lanes.entered[lane] = true;
      lanes.inside.fetch_add(1);
      pool = lanes.pool;
    }
    if (pool->is_limited()) {
      pool->duties_[lane].begin();
    }
    while (pool->run_one(lane)) {
    }
    lanes.inside.fetch_sub(1);
    lanes.inside.notify_all();
  }
};

void Duty::rest(double max_load) {
  // Long enough that a thread switch costs little, short enough that the load is even.
  constexpr auto kWork = std::chrono::milliseconds(2);
  const std::chrono::nanoseconds now = processor_time();
  worked_ += now - began_;
  began_ = now;
  if (worked_ < kWork) {
    return;
  }
  // One long task must not be followed by an equally long rest in one piece: a stop would wait.
  constexpr std::chrono::duration<double> kLongest = std::chrono::milliseconds(40);
  using Clock = std::chrono::steady_clock;
  const std::chrono::duration<double> due = worked_ * (1 / max_load - 1);
  const Clock::time_point before = Clock::now();
  sleep_for(std::chrono::duration_cast<std::chrono::nanoseconds>(std::min(due, kLongest)));
  const std::chrono::duration<double> slept = Clock::now() - before;
  began_ = processor_time();
  const auto paid =
      std::chrono::duration_cast<std::chrono::nanoseconds>(slept / (1 / max_load - 1));
  worked_ -= std::min(worked_, paid);
}

Threads::Threads(size_t count, ThreadOptions options) : options_(std::move(options)) {
  if (is_limited()) {
    duties_.resize(std::max<size_t>(count, 1));
  }
  if (options_.executor != nullptr) {
    workers_ = std::max<size_t>(count, 1) - 1;
    lanes_ = std::make_shared<Lanes>();
    lanes_->entered.resize(count);
    lane_ = [lanes = lanes_](size_t lane) { Lanes::run(lanes, lane); };
    return;
  }
  if (count > 1) {
    start_workers(count - 1);
  }
}

void Threads::start_workers(size_t count) {
  worker_.reset(new (std::nothrow) Worker[count]);
  for (size_t i = 0; worker_ != nullptr && i < count; ++i) {
    worker_[i].pool = this;
    worker_[i].thread = i + 1;
    worker_[i].handle = start_thread(enter, &worker_[i]);
    if (worker_[i].handle == nullptr) {
      break;
    }
    workers_ = i + 1;
  }
}

Threads::~Threads() {
  if (lanes_ != nullptr) {
    return;
  }
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (size_t i = 0; i < workers_; ++i) {
    join_thread(worker_[i].handle);
  }
}

void Threads::enter(void* worker) {
  const Worker* w = static_cast<const Worker*>(worker);
  // The cores were checked when the device was opened.
  place_thread(w->pool->options_.cores, w->pool->options_.nice);
  w->pool->work(w->thread);
}

void Threads::stop_or_rest() {
  rest();
  throw_if_stopped();
}

// Without exceptions, a node runs to its end.
void Threads::throw_if_stopped() const {
#ifdef __cpp_exceptions
  if (is_stopped()) {
    std::rethrow_exception(std::make_exception_ptr(Stopped()));
  }
#endif
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
      throw_if_stopped();
      call_(context_, static_cast<size_t>(task), thread);
    } catch (...) {
      if (!failed_.exchange(true)) {
        failure_ = std::current_exception();
      }
    }
#else
    call_(context_, static_cast<size_t>(task), thread);
#endif
    if (is_limited()) {
      duties_[thread].rest(options_.max_load);
    }
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
    if (is_limited()) {
      duties_[thread].begin();  // waiting for work is no work
    }
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
  if (lanes_ != nullptr) {
    run_in_executor();
    return finish();
  }
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

void Threads::run_in_executor() {
  {
    const std::lock_guard lock(lanes_->mutex);
    std::fill(lanes_->entered.begin(), lanes_->entered.end(), false);
    lanes_->pool = this;
  }
  // The caller runs the tasks that are left.
  ignoring_exceptions([&] {
    options_.executor(std::min<size_t>(count(), static_cast<size_t>(unclaimed_.load())), lane_);
  });
  {
    const std::lock_guard lock(lanes_->mutex);
    lanes_->pool = nullptr;
  }
  for (uint32_t n = lanes_->inside.load(); n != 0; n = lanes_->inside.load()) {
    lanes_->inside.wait(n);
  }
  while (run_one(0)) {
  }
}

// Rethrows the exception of a task in the caller's thread.
void Threads::finish() {
  if (failed_.load(std::memory_order_relaxed)) {
    failed_.store(false);
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

}  // namespace bowline::detail::cpu
