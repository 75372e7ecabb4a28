// States that a step writes (running statistics): all of a step, or nothing.
//
// They are written by the forward part of every micro-batch, before anybody knows whether its step
// will be applied. So their values of the begin of the step stay in host memory, and a step that
// begins anew, fails or is skipped puts them back: it leaves no trace in them, not of what is not
// finite either. After a rollback or resume in the middle of a step its begin is where that went
// on.
#include "train/trainer.h"

namespace bowline::detail::train {

Status TrainerState::check_states(const graph::GenericGraph& graph,
                                  std::span<const uint32_t> states) const {
  for (const uint32_t tie : states) {
    const params::Storage& state = model_->table.storages[tie];
    BOWLINE_REQUIRE_CODE(
        state.role == params::Role::running_statistic, Code::unsupported,
        "Graph \"{}\" writes storage {}, a {}; of states a Trainer lets a graph write "
        "running statistics alone.",
        graph.name, tie, bowline::name_of(state.role));
  }
  return {};
}

std::vector<TrainerState::State> TrainerState::states_of(const plan::Plan& plan,
                                                         const params::Table& table) {
  std::vector<State> out;
  for (const uint32_t tie : plan.written) {
    const params::Storage& row = table.storages[tie];
    if (row.role == params::Role::running_statistic) {
      out.push_back({tie, std::vector<std::byte>(row.bytes())});
    }
  }
  return out;
}

Status TrainerState::keep_states() {
  if (states_kept_ && state_.micro_step > 0) {
    return {};
  }
  states_kept_ = false;
  for (State& s : states_) {
    const device::Block& block = *model_->table.storages[s.tie].home.block;
    BOWLINE_TRY(block.read(0, s.bytes));
  }
  states_kept_ = true;
  return {};
}

Status TrainerState::put_back_states() {
  for (const State& s : states_) {
    if (states_kept_) {
      const device::Block& block = *model_->table.storages[s.tie].home.block;
      const Status written = block.write(0, s.bytes);
      model_->table.wrote(s.tie);
      if (!written.ok()) {
        fault_ = TrainState::damaged;
        return written;
      }
    }
  }
  return {};
}

}  // namespace bowline::detail::train
