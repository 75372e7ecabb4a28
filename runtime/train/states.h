// Restores running statistics if a step is not applied.
//
// The forward part of each micro-batch writes running statistics, before it is known whether the
// step will be applied. So their values from the start of the step stay in host memory. If the step
// fails, is skipped or is restarted, the values are written back. Non-finite values leave no trace
// either. After a rollback or resume in the middle of a step, the values of that moment are kept.
#pragma once

#include "plan/plan.h"

namespace bowline::detail::train {

class RunningStates {
 public:
  RunningStates() = default;
  // Finds the running statistics that the accumulate segment writes.
  RunningStates(const plan::Plan& accumulate, const params::Table& table);

  bool empty() const { return states_.empty(); }
  // Call it before a micro-batch. The first call in a step copies the values to the host.
  Status keep(const params::Table& table, bool inside_step);
  // Writes the kept values to the storages. After a failure, some storages may be written.
  Status put_back(params::Table& table) const;
  // Makes the next call of keep() copy the values again, even in the middle of a step.
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
