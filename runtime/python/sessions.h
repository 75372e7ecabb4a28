// A session in Python, and the arguments of its runs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>

#include "support.h"

namespace bowline::python {

// What Session.run() and submit() get for `outputs`: names, or arrays and buffers by name.
using WantedOutputs = std::optional<std::variant<std::vector<std::string>, nb::dict>>;

struct PySession;

// The arguments of a run. They live until the run has ended.
class RunArguments {
 public:
  RunArguments(PySession& session, const nb::dict& inputs, const WantedOutputs& outputs,
               const nb::dict& scalars, const nb::dict& overrides, std::string entry_point);

  RunArguments(const RunArguments&) = delete;
  RunArguments& operator=(const RunArguments&) = delete;

  RunRequest request() const;
  // Call it after the run succeeded. Returns the outputs by name.
  nb::dict finish();
  // Releases the arrays that the run read.
  void release_inputs();

 private:
  void add_output(const std::string& name, DType dtype, const TensorShape& shape, nb::handle given);

  std::string entry_point_;
  Arrays inputs_;
  Arrays overrides_;
  std::vector<std::string> names_;
  std::vector<StepScalar> scalars_;
  Arrays given_;
  std::deque<std::string> made_names_;
  std::deque<NewArray> made_;
  std::vector<Tensor> outputs_;
  nb::dict out_;
};

// Says that a submitted run has ended. The thread of the session calls set().
class Ended {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  // Returns true if the run has ended, after at most this time.
  bool wait_for(std::chrono::duration<double> time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [this] { return ended_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
};

// A submitted run. Only threads with the lock of the interpreter use it, except `ended`.
struct Submitted {
  RunArguments arguments;
  std::shared_ptr<Ended> ended = std::make_shared<Ended>();
  std::optional<PendingRun> run = {};  // set by submit()
};

// A session, and what its outputs look like.
struct PySession {
  explicit PySession(Session made) : session(std::move(made)) {}
  // Cancels pending runs and waits for them, before their arrays die.
  ~PySession();
  PySession(const PySession&) = delete;
  PySession& operator=(const PySession&) = delete;

  // Forgets runs that have ended. Returns false if a run is pending.
  bool settle();

  std::optional<Session> session;
  std::vector<SegmentInfo> plans;  // of the last description
  uint64_t builds = 0;             // Counters::plan_builds at that time
  // Runs that were submitted. The session keeps their arrays, also if the program drops them.
  std::list<std::shared_ptr<Submitted>> pending;
};

void add_pending_runs(nb::module_& module);
// Session.submit(), whose result keeps the session.
nb::object submit(nb::handle_t<PySession> session, const nb::dict& inputs,
                  const WantedOutputs& outputs, const nb::dict& scalars, const nb::dict& overrides,
                  const std::string& entry_point);

}  // namespace bowline::python
