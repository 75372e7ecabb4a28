// Submitted runs: a thread per session runs them in order.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>

#include "base/threads.h"
#include "bowline.h"
#include "device/fork.h"
#include "device/turns.h"
#include "exec/segment.h"

namespace bowline::detail::exec {

class PendingState;

// What a queue shares with its runs, which may outlive it.
struct QueueState {
  device::Turns mutex;
  std::atomic<uint32_t> changes{0};
  std::deque<std::shared_ptr<PendingState>> runs;  // the first one may be active
  bool ends = false;
  CancelRequest* cancel = nullptr;  // of the active run
  ThreadId worker{};
  uint32_t forks = device::forks();

  bool was_forked() const { return forks != device::forks(); }
  // Wakes the threads that wait.
  void notify() {
    changes.fetch_add(1);
    changes.notify_all();
  }
  // Waits, without the lock, until notify() is called.
  void wait(std::unique_lock<device::Turns>& lock) {
    const uint32_t seen = changes.load();
    lock.unlock();
    changes.wait(seen);
    lock.lock();
  }
};

// The state of a PendingRun, with a copy of its request.
//
// Threads: any thread.
class PendingState {
 public:
  PendingState(std::shared_ptr<QueueState> queue, const RunRequest& request);
  PendingState(const PendingState&) = delete;
  PendingState& operator=(const PendingState&) = delete;

  bool done() const;
  Status wait() const;
  void cancel();

 private:
  friend class RunQueue;
  std::span<const Tensor> keep(std::span<const Tensor> tensors);

  std::shared_ptr<QueueState> queue_;
  std::string entry_point_;
  std::deque<std::string> names_;
  std::deque<DeviceBuffer> buffers_;
  std::deque<std::vector<Tensor>> tensors_;
  std::vector<StepScalar> scalars_;
  RunRequest request_;
  bool cancelled_ = false;  // by cancel()
  bool done_ = false;
  Status result_;
};

// The submitted runs of a session, and their thread.
class RunQueue {
 public:
  using Run = std::function<Status(const RunRequest& request)>;

  // `run` runs a request. `pending` is called with true when a request joins the queue, and with
  // false after its run, before its waiters continue.
  RunQueue(Run run, std::function<void(bool)> pending, CancelRequest& cancel);
  // Cancels the runs and waits. In a callback of a run, it does not wait for that callback.
  ~RunQueue();
  RunQueue(const RunQueue&) = delete;
  RunQueue& operator=(const RunQueue&) = delete;

  // Errors  bad_argument: too many runs are pending. out_of_memory: there is no thread.
  Result<std::shared_ptr<PendingState>> add(const RunRequest& request);
  // Waits until no run is pending.
  // Errors  bad_argument: the thread of the queue calls it, and would wait forever.
  Status settle();
  // Held while the session is used.
  device::Turns& use() { return use_; }
  bool was_forked() const { return state_->was_forked(); }

 private:
  Status start();
  void work(QueueState& state);
  void run_first(std::unique_lock<device::Turns>& lock);
  // Ends the first run. Its callback may destroy the queue.
  void end_first(Status result, std::unique_lock<device::Turns>& lock);

  std::shared_ptr<QueueState> state_ = std::make_shared<QueueState>();
  Run run_;
  std::function<void(bool)> pending_;
  CancelRequest& cancel_;
  device::Turns use_;
  Thread* thread_ = nullptr;
};

}  // namespace bowline::detail::exec
