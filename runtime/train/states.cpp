#include "train/states.h"

namespace bowline::detail::train {

RunningStates::RunningStates(const plan::Plan& accumulate, const params::Table& table) {
  for (const uint32_t tie : accumulate.written) {
    const params::Storage& row = table.storages[tie];
    if (row.role == params::Role::running_statistic) {
      states_.push_back({tie, std::vector<std::byte>(row.bytes())});
    }
  }
}

Status RunningStates::keep(const params::Table& table, bool inside_step) {
  if (kept_ && inside_step) {
    return {};
  }
  kept_ = false;
  for (State& s : states_) {
    BOWLINE_TRY(table.storages[s.tie].home.block->read(0, s.bytes));
  }
  kept_ = true;
  return {};
}

Status RunningStates::put_back(params::Table& table) const {
  for (const State& s : states_) {
    if (kept_) {
      const Status written = table.storages[s.tie].home.block->write(0, s.bytes);
      table.wrote(s.tie);
      BOWLINE_TRY(Status(written));
    }
  }
  return {};
}

}  // namespace bowline::detail::train
