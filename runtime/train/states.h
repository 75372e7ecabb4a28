// States that a step writes (running statistics): all of a step, or nothing.
//
// They are written by the forward part of every micro-batch, before anybody knows whether its step
// will be applied. So their values of the begin of the step stay in host memory, and a step that
// begins anew, fails or is skipped puts them back: it leaves no trace in them, not of what is not
// finite either. After a rollback or resume in the middle of a step its begin is where that went
// on.
#pragma once

#include "plan/plan.h"

namespace bowline::detail::train {

class RunningStates {
 public:
  RunningStates() = default;
  // The running statistics that the accumulate segment writes.
  RunningStates(const plan::Plan& accumulate, const params::Table& table);

  // Before a micro-batch: reads the values of the begin of its step, unless they are kept already.
  Status keep(const params::Table& table, bool inside_step);
  // Writes what is kept. After a failure the storages are partly written.
  Status put_back(params::Table& table) const;
  // The next micro-batch begins anew, wherever it is in its step.
  void forget() { kept_ = false; }

 private:
  struct State {
    uint32_t tie = 0;
    std::vector<std::byte> bytes;
  };

  std::vector<State> states_;
  bool kept_ = false;
};

}  // namespace bowline::detail::train
