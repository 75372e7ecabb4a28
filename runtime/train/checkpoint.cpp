// Checkpoints: the model file with moments, pending gradients and the training state.
//
// The order of data and the dropout masks are functions of counters, so the counters are all that is kept of them.
#include "graph/load.h"
#include "graph/save.h"
#include "train/trainer.h"

namespace bowline::train {
namespace {

using params::Storage;
using params::Table;

// What must not change between the two halves of a run.
std::string run_text(const TrainOptions& o) {
  const bool adamw = o.optimizer.kind == Optimizer::Kind::adamw;
  return format("{} accumulation={} seed={} loss={}.{}", adamw ? "adamw" : "sgd", o.accumulation,
                o.seed, o.entry_point, o.loss);
}

std::unique_ptr<file::SettingT> setting(std::string key, std::string value) {
  auto s = std::make_unique<file::SettingT>();
  s->key = std::move(key);
  s->value = std::move(value);
  return s;
}

// The row of the checkpoint that belongs to row `tie` of the live table: weights by tie index, rows
// of the optimizer by their owner.
const Storage* counterpart(const Table& saved, const Table& live, uint32_t tie) {
  const Storage& row = live.storages[tie];
  if (row.owner != params::kNoOwner) {
    const auto found = saved.owned(static_cast<uint32_t>(row.owner), row.role, row.slot);
    return found ? &saved.storages[*found] : nullptr;
  }
  return tie < saved.storages.size() ? &saved.storages[tie] : nullptr;
}

}  // namespace

Status TrainerState::save(const std::string& path, const Progress& data) const {
  file::TrainingStateT t;
  t.step = state_.step;
  t.applied_steps = state_.applied;
  t.epoch = data.epoch;
  t.sample_cursor = data.data_cursor;
  t.shuffle_seed = data.data_seed;
  t.micro_step = state_.micro_step;
  t.rng_seed = options_.seed;
  t.rng_counter = state_.counter;
  t.optimizer = run_text(options_);
  t.loss_log = state_.losses;
  for (const auto& [key, value] : data.config) {
    t.config.push_back(setting(key, value));
  }
  t.versions.push_back(setting("bowline", std::string(version())));
  if (device_ != nullptr) {
    t.versions.push_back(
        setting("device", format("{}: {}", device_->info().name, device_->info().description)));
  }
  return graph::save_model(*model_, path, &t);
}

Result<Progress> TrainerState::resume(const std::string& path) {
  BOWLINE_TRY(prepare());
  BOWLINE_ASSIGN(const auto verified, model::VerifiedFile::open(path));
  // Nothing is used before every checksum matched.
  BOWLINE_TRY(verified->verify_all());
  BOWLINE_ASSIGN(const auto saved, graph::load_model(verified));
  const auto refuse = [&](std::string why) {
    return Status(Code::bad_file, format("\"{}\" cannot be resumed: {}", path, why));
  };
  const file::TrainingStateT* t = saved->training.get();
  if (t == nullptr) {
    return refuse("it is a model without a training state.");
  }
  Table& live = model_->table;
  if (saved->table.list_parameters() != live.list_parameters()) {
    return refuse("it is a checkpoint of another model: its parameters differ.");
  }
  if (t->optimizer != run_text(options_)) {
    return refuse(format("it belongs to another run ({}; this one is {}).", t->optimizer,
                         run_text(options_)));
  }
  Table staged = live;
  for (uint32_t tie = 0; tie < staged.storages.size(); ++tie) {
    Storage& row = staged.storages[tie];
    if (row.empty) {
      continue;
    }
    const Storage* from = counterpart(saved->table, live, tie);
    const bool pending = row.role == params::Role::gradient;
    if (pending && (from == nullptr || !from->home.valid())) {
      continue;  // between two steps gradients are not kept
    }
    if (from == nullptr || !from->home.valid() || !(from->shape == row.shape) ||
        from->dtype != row.dtype) {
      return refuse(format("storage {} ({}) is missing or has another shape.", tie,
                           params::name_of(row.role)));
    }
    BOWLINE_ASSIGN(const std::vector<std::byte> bytes, params::read_bytes(*from));
    BOWLINE_ASSIGN(row.home.block, device::Block::allocate(live.device(), bytes.size(),
                                                           device::MemoryKind::device));
    BOWLINE_TRY(live.device()->copy_in(row.home.block->buffer(), 0, bytes));
    ++row.version;
    ++row.generation;
  }
  Progress out;
  out.step = t->step;
  out.micro_step = t->micro_step;
  out.epoch = t->epoch;
  out.data_cursor = t->sample_cursor;
  out.data_seed = t->shuffle_seed;
  for (const auto& s : t->config) {
    out.config.emplace_back(s->key, s->value);
  }
  Position position = {t->step, t->applied_steps, t->rng_counter,
                       static_cast<uint32_t>(t->micro_step), t->loss_log};
  live = std::move(staged);
  state_ = std::move(position);
  return out;
}

}  // namespace bowline::train
