// Snapshots: copies weights, training state and ties to host memory and restores them.
#include "params/stage.h"
#include "train/trainer.h"

namespace bowline::detail::train {
namespace {

using params::ParameterRow;
using params::Storage;
using params::Table;

bool same_layout(const Storage& a, const Storage& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.encoding == b.encoding && a.role == b.role &&
         a.owner == b.owner && a.slot == b.slot && a.trainable == b.trainable && a.empty == b.empty;
}

// Gives row `tie` the layout `then`. Keeps its block if the block has the right size. Otherwise
// allocates one on `home`.
Status take_layout(Table& table, uint32_t tie, const Storage& then,
                   const std::shared_ptr<device::OpenDevice>& home) {
  const Storage& row = table.storages[tie];
  const bool keeps_block =
      !row.empty && row.home.block != nullptr && row.home.block->bytes() == then.bytes();
  if (keeps_block && same_layout(row, then)) {
    return {};
  }
  Storage fresh = then;
  fresh.version = row.version;
  fresh.generation = row.generation + 1;
  if (keeps_block) {
    fresh.home.block = row.home.block;
  } else {
    BOWLINE_TRY_ASSIGN(
        fresh.home.block,
        device::Block::allocate(row.home.block ? row.home.block->device_handle() : home,
                                then.bytes(), device::MemoryKind::device));
  }
  table.put(tie, std::move(fresh));
  return {};
}

// Restores the ties of the snapshot. The old and the new storage of a parameter count as changed.
void take_parameters(Table& table, const Table& then) {
  for (uint32_t p = 0; p < table.parameters.size(); ++p) {
    const ParameterRow& now = table.parameters[p];
    const ParameterRow& before = then.parameters[p];
    if (now.tie != before.tie || !(now.view == before.view)) {
      table.changed(now.tie);
      table.changed(before.tie);
      table.show(p, before.tie, before.view);
    }
  }
}

}  // namespace

Status TrainerState::snapshot() {
  BOWLINE_TRY(require_state("snapshot()"));
  BOWLINE_TRY(masters_.fill(model_->table));
  Snapshot s;
  s.position = state_;
  if (state_.micro_step > 0 && sums_apart()) {
    BOWLINE_TRY_ASSIGN(s.sums, sums_.sums());
  }
  s.layout = model_->table;
  for (uint32_t tie = 0; tie < s.layout.storages.size(); ++tie) {
    const Storage& row = s.layout.storages[tie];
    auto& bytes = s.bytes.emplace_back();
    // Gradients have no meaning between steps.
    if (!row.empty && (row.role != params::Role::gradient || state_.micro_step > 0)) {
      BOWLINE_TRY_ASSIGN(bytes, params::read_bytes(row));
    }
    s.layout.set_home(tie, {});
  }
  snapshot_ = std::move(s);
  return {};
}

Status TrainerState::rollback() {
  BOWLINE_TRY(params::require_idle(model_->users.busy(), "rollback()"));
  return restore();
}

Status TrainerState::restore() {
  BOWLINE_REQUIRE(snapshot_.has_value(), "There is no snapshot to roll back to.");
  const Table& then = snapshot_->layout;
  BOWLINE_REQUIRE(then.parameters.size() == model_->table.parameters.size(),
                  "The snapshot has {} parameters, but the model has {}: some were declared later.",
                  then.parameters.size(), model_->table.parameters.size());
  Table staged = model_->table;
  take_parameters(staged, then);
  for (uint32_t tie = 0; tie < staged.storages.size(); ++tie) {
    if (tie >= then.storages.size() || then.storages[tie].empty) {
      staged.make_empty(tie);
    } else {
      BOWLINE_TRY(take_layout(staged, tie, then.storages[tie], home()));
    }
  }
  // Write new blocks first. Until a live block is written, a failure changes nothing.
  for (const bool live : {false, true}) {
    for (uint32_t tie = 0; tie < then.storages.size(); ++tie) {
      const Storage& row = staged.storages[tie];
      const auto& bytes = snapshot_->bytes[tie];
      if (bytes.empty() || live != (row.home.block == model_->table.storages[tie].home.block)) {
        continue;
      }
      BOWLINE_TRY(row.home.block->write(0, bytes));
      staged.wrote(tie);
      if (live) {
        unread_.reset();
        fault_ = TrainState::damaged;
      }
    }
  }
  masters_.agree(then, staged);
  model_->table = std::move(staged);
  state_ = snapshot_->position;
  if (state_.micro_step > 0 && sums_apart()) {
    BOWLINE_TRY(sums_.set_sums(snapshot_->sums));
  }
  gradient_loss_scale_ = state_.loss_scale.value_or(1);
  gradients_known_ = state_.micro_step > 0;
  states_.forget();
  unread_.reset();
  fault_ = TrainState::ready;
  return {};
}

}  // namespace bowline::detail::train
