#include "exec/pending.h"

#include <algorithm>
#include <utility>

#include "base/boundary.h"

namespace bowline::detail::exec {

PendingState::PendingState(std::shared_ptr<QueueState> queue, const RunRequest& request)
    : queue_(std::move(queue)), entry_point_(request.entry_point) {
  for (StepScalar scalar : request.scalars) {
    scalar.name = names_.emplace_back(scalar.name);
    scalars_.push_back(scalar);
  }
  request_ = {entry_point_, keep(request.inputs),    keep(request.outputs),
              scalars_,     keep(request.overrides), request.done};
}

std::span<const Tensor> PendingState::keep(std::span<const Tensor> tensors) {
  std::vector<Tensor>& kept = tensors_.emplace_back(tensors.begin(), tensors.end());
  for (Tensor& t : kept) {
    t.name = names_.emplace_back(t.name);
    t.buffer = t.buffer == nullptr ? nullptr : &buffers_.emplace_back(*t.buffer);
  }
  return kept;
}

bool PendingState::done() const {
  if (queue_->was_forked()) {
    return done_;  // another thread of the parent may have held the mutex
  }
  const std::lock_guard lock(queue_->mutex);
  return done_;
}

Status PendingState::wait() const {
  if (queue_->was_forked()) {
    // Another thread of the parent may have held the mutex.
    BOWLINE_REQUIRE_CODE(done_, Code::device_lost,
                         "The run was submitted before fork(), and this is the child process. "
                         "Open a device here, and load the model again.");
    return result_;
  }
  std::unique_lock lock(queue_->mutex);
  BOWLINE_REQUIRE(done_ || queue_->worker != this_thread(),
                  "A callback of a run waits for a later run of its session, which begins only "
                  "after the callback has returned.");
  while (!done_) {
    queue_->wait(lock);
  }
  return result_;
}

void PendingState::cancel() {
  if (queue_->was_forked()) {
    return;
  }
  const std::lock_guard lock(queue_->mutex);
  cancelled_ = true;
  if (queue_->cancel != nullptr && !queue_->runs.empty() && queue_->runs.front().get() == this) {
    queue_->cancel->ask_now();
  }
}

namespace {

Status cancelled_early() {
  return Status(Code::cancelled, "The run was cancelled before it began.");
}

}  // namespace

RunQueue::RunQueue(Run run, std::function<void(bool)> pending, CancelRequest& cancel)
    : run_(std::move(run)), pending_(std::move(pending)), cancel_(cancel) {}

RunQueue::~RunQueue() {
  if (was_forked()) {
    return;  // the thread does not exist in this process
  }
  std::unique_lock lock(state_->mutex);
  state_->ends = true;
  if (state_->worker == this_thread()) {
    while (!state_->runs.empty()) {
      end_first(cancelled_early(), lock);
    }
    detach_thread(thread_);
    return;
  }
  if (state_->cancel != nullptr) {
    state_->cancel->ask_now();
  }
  lock.unlock();
  state_->notify();
  if (thread_ != nullptr) {
    join_thread(thread_);
  }
}

// A callback may destroy the queue: then `ends` is set, and nothing is pending.
void RunQueue::work(QueueState& state) {
  std::unique_lock lock(state.mutex);
  state.worker = this_thread();
  while (!state.ends || !state.runs.empty()) {
    if (state.runs.empty()) {
      state.wait(lock);
    } else {
      run_first(lock);
    }
  }
}

Status RunQueue::start() {
  if (thread_ != nullptr) {
    return {};
  }
  // The thread may outlive the queue.
  struct Start {
    RunQueue* queue;
    std::shared_ptr<QueueState> state;
  };
  auto start = std::make_unique<Start>(Start{this, state_});
  const auto run = [](void* own) {
    const std::unique_ptr<Start> s(static_cast<Start*>(own));
    s->queue->work(*s->state);
  };
  thread_ = start_thread(run, start.get());
  BOWLINE_REQUIRE_CODE(thread_ != nullptr, Code::out_of_memory,
                       "The system cannot start a thread for submitted runs. Use Session::run().");
  static_cast<void>(start.release());
  return {};
}

Result<std::shared_ptr<PendingState>> RunQueue::add(const RunRequest& request) {
  BOWLINE_REQUIRE_CODE(!was_forked(), Code::device_lost,
                       "The session was made before fork(), and this is the child process. Open a "
                       "device here, and load the model again.");
  auto run = std::make_shared<PendingState>(state_, request);
  const std::lock_guard lock(state_->mutex);
  BOWLINE_REQUIRE(state_->runs.size() < Session::kMostPending,
                  "{} runs are pending, which is the most. Wait for one of them.",
                  state_->runs.size());
  BOWLINE_TRY(start());
  state_->runs.push_back(run);
  pending_(true);
  state_->notify();
  return run;
}

Status RunQueue::settle() {
  BOWLINE_REQUIRE_CODE(!was_forked(), Code::device_lost,
                       "The session was made before fork(), and this is the child process. Open a "
                       "device here, and load the model again.");
  std::unique_lock lock(state_->mutex);
  BOWLINE_REQUIRE(state_->worker != this_thread(),
                  "A callback of a submitted run uses its session. It may only submit runs.");
  while (!state_->runs.empty()) {
    state_->wait(lock);
  }
  return {};
}

void RunQueue::run_first(std::unique_lock<device::Turns>& lock) {
  const std::shared_ptr<PendingState> run = state_->runs.front();
  if (run->cancelled_ || state_->ends) {
    end_first(cancelled_early(), lock);
    return;
  }
  state_->cancel = &cancel_;
  lock.unlock();
  Status result;
  {
    const std::lock_guard in_use(use_);
    result = guarded([&] { return run_(run->request_); });
  }
  lock.lock();
  state_->cancel = nullptr;
  if (run->cancelled_ || state_->ends) {
    cancel_.forget();
  }
  end_first(std::move(result), lock);
}

void RunQueue::end_first(Status result, std::unique_lock<device::Turns>& lock) {
  const std::shared_ptr<PendingState> run = state_->runs.front();
  pending_(false);
  const std::function<void(const Status&)> done = std::exchange(run->request_.done, nullptr);
  run->result_ = result;
  run->done_ = true;
  state_->runs.pop_front();
  state_->notify();
  if (done != nullptr) {
    lock.unlock();
    ignoring_exceptions([&] { done(result); });
    lock.lock();
  }
}

}  // namespace bowline::detail::exec
