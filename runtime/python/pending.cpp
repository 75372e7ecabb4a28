// Submitted runs.
#include <algorithm>

#include "sessions.h"

namespace bowline::python {
namespace {

using namespace nb::literals;

int64_t process() { return nb::cast<int64_t>(nb::module_::import_("os").attr("getpid")()); }

struct PyPendingRun {
  nb::object session;
  std::shared_ptr<Submitted> submitted;
  int64_t of_process = process();

  ~PyPendingRun() {
    if (submitted != nullptr) {
      submitted.reset();
      settle();
    }
  }
  PyPendingRun(nb::object of, std::shared_ptr<Submitted> run)
      : session(std::move(of)), submitted(std::move(run)) {}
  PyPendingRun(PyPendingRun&&) = default;
  PyPendingRun& operator=(PyPendingRun&&) = delete;

  void settle() const { (void)nb::cast<PySession&>(session).settle(); }
};

// Waits for the end of the run, or raises TimeoutError. Ctrl-C raises KeyboardInterrupt.
void wait_for_end(const PyPendingRun& r, const std::optional<double>& timeout) {
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  constexpr Seconds kSlice(0.05);  // how often it looks for signals
  const Clock::time_point begin = Clock::now();
  for (;;) {
    const Seconds left = Seconds(timeout.value_or(kSlice.count())) - (Clock::now() - begin);
    const Seconds slice = timeout ? std::clamp(left, Seconds(0), kSlice) : kSlice;
    if (unlocked([&] { return r.submitted->ended->wait_for(slice); })) {
      return;
    }
    check_signals();
    if (timeout && !(left > slice)) {
      PyErr_Format(PyExc_TimeoutError,
                   "The run has not ended after %R seconds. It continues: wait() again, or call "
                   "cancel().",
                   nb::cast(*timeout).ptr());
      throw nb::python_error();
    }
  }
}

nb::dict wait(const PyPendingRun& r, const std::optional<double>& timeout) {
  if (r.of_process == process()) {  // the thread of the session does not exist in a child
    wait_for_end(r, timeout);
  }
  const Status result = unlocked([&] { return r.submitted->run->wait(); });
  r.settle();
  check(result);
  return r.submitted->arguments.finish();
}

}  // namespace

nb::object submit(nb::handle_t<PySession> session, const nb::dict& inputs,
                  const WantedOutputs& outputs, const nb::dict& scalars, const nb::dict& overrides,
                  const std::string& entry_point) {
  auto& s = nb::cast<PySession&>(session);
  const std::shared_ptr<Submitted> made(
      new Submitted{{s, inputs, outputs, scalars, overrides, entry_point}});
  RunRequest request = made->arguments.request();
  request.done = [ended = made->ended](const Status&) { ended->set(); };
  made->run = take(unlocked([&] { return s.session->submit(request); }));
  s.pending.push_back(made);
  return nb::cast(PyPendingRun(nb::borrow(session), made));
}

void add_pending_runs(nb::module_& module) {
  nb::class_<PyPendingRun>(
      module, "PendingRun",
      "A run that Session.submit() started. Any thread may use it.\n\nIn a coroutine, `await run` "
      "waits in a thread of asyncio, and returns the outputs. If the task is cancelled, the run is "
      "cancelled, too.")
      .def("wait", &wait, "timeout"_a = nb::none(),
           "Waits until the run has ended, and returns its outputs by name, as Session.run(). It "
           "raises the error of the run, each time.\n\ntimeout: seconds, or None for no limit. If "
           "the run has not ended then, wait() raises TimeoutError. Ctrl-C raises "
           "KeyboardInterrupt. In both cases the run continues.")
      .def_prop_ro(
          "done", [](const PyPendingRun& r) { return r.submitted->run->done(); },
          "True if the run has ended.")
      .def(
          "cancel", [](const PyPendingRun& r) { unlocked([&] { r.submitted->run->cancel(); }); },
          "Cancels this run, and no other. wait() then raises an Error with the code "
          "\"cancelled\", unless the result is complete.")
      .def("__await__", [](nb::handle_t<PyPendingRun> self) {
        return nb::module_::import_("bowline._waiting").attr("wait")(self).attr("__await__")();
      });
}

}  // namespace bowline::python
