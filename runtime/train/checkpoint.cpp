// Checkpoints: the model file with moments, pending gradients and the training state. The order of
// the data and the dropout masks are functions of counters, so a checkpoint stores only the
// counters.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "graph/load.h"
#include "graph/save.h"
#include "params/home.h"
#include "params/stage.h"
#include "params/verbs.h"
#include "params/weight_format.h"
#include "train/optimizer.h"
#include "train/options.h"
#include "train/trainer.h"

namespace bowline::detail::train {
namespace {

using params::Role;
using params::Storage;
using params::Table;

std::string_view value_of(const Settings& settings, std::string_view key) {
  const auto found = std::ranges::find(settings, key, &Settings::value_type::first);
  return found == settings.end() ? std::string_view("none") : std::string_view(found->second);
}

std::string device_text(const device::OpenDevice& device) {
  return format("{}: {}", device.info().name, device.info().description);
}

// Checks that both tables have the same parameters with the same dtypes and shapes, then the same
// ties and views. The two checks have separate messages.
Status check_parameters(const Table& saved, const Table& live) {
  const auto shapes = [](const Table& t) {
    std::vector<std::string> out;
    for (const params::ParameterRow& p : t.parameters) {
      const Storage& s = t.storages[p.tie];
      const Result<Shape> shape = params::view_shape(p.view, s.shape);
      out.push_back(format("\"{}\" {}{}", p.name, s.dtype, shape.ok() ? shape.value() : s.shape));
    }
    return out;
  };
  const std::vector<std::string> there = shapes(saved);
  const std::vector<std::string> here = shapes(live);
  BOWLINE_REQUIRE(there.size() == here.size(),
                  "it is a checkpoint of another model: it has {} parameters, this one has {}.",
                  there.size(), here.size());
  const auto [a, b] = std::ranges::mismatch(there, here);
  BOWLINE_REQUIRE(a == there.end(),
                  "it is a checkpoint of another model: the first parameter that differs is {} in "
                  "the checkpoint and {} here.",
                  *a, *b);
  for (size_t p = 0; p < live.parameters.size(); ++p) {
    const params::ParameterRow& here_p = live.parameters[p];
    const params::ParameterRow& there_p = saved.parameters[p];
    BOWLINE_REQUIRE(here_p.tie == there_p.tie && here_p.view == there_p.view,
                    "its ties differ: parameter \"{}\" has storage {} in the checkpoint and {} "
                    "here, or another view. The ties of the checkpoint are \"{}\", here \"{}\".",
                    here_p.name, there_p.tie, here_p.tie, saved.list_ties(), live.list_ties());
  }
  return {};
}

// Checks that moments are finite and that second moments are not negative.
Status check_moments(const Storage& row, bool squares) {
  std::vector<std::byte> scratch;
  BOWLINE_TRY_ASSIGN(const params::Bytes bytes, params::read_all(row, scratch));
  for (size_t i = 0; i + sizeof(float) <= bytes.size(); i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, bytes.data() + i, sizeof(value));
    BOWLINE_REQUIRE(std::isfinite(value) && (!squares || value >= 0),
                    "moment {} of storage {} holds the invalid value {}.", row.slot, row.owner,
                    value);
  }
  return {};
}

// Checks that moments and pending gradients fit their owners. A storage that was thawed after the
// last step has no moments. They start as zeros.
Status check_rows(const Table& saved, const Optimizer& optimizer, bool pending) {
  for (size_t tie = 0; tie < saved.storages.size(); ++tie) {
    const Storage& row = saved.storages[tie];
    if (row.empty) {
      continue;
    }
    BOWLINE_REQUIRE(row.home.valid(), "storage {} ({}) has no values.", tie, name_of(row.role));
    if (!params::is_training(row.role)) {
      continue;
    }
    const bool owned = row.owner >= 0 && static_cast<size_t>(row.owner) < saved.storages.size();
    const Shape owner = owned ? saved.storages[static_cast<size_t>(row.owner)].shape : Shape{};
    const std::vector<Moment> kept = moments(optimizer, owner);
    const bool is_moment = row.role == Role::moment;
    BOWLINE_REQUIRE(!owned || !is_moment || row.slot < kept.size(),
                    "storage {} is moment {}, but the optimizer has {} moments.", tie, row.slot,
                    kept.size());
    const bool fits =
        owned && row.shape == (is_moment ? kept[row.slot].shape : owner) && row.dtype == DType::f32;
    BOWLINE_REQUIRE(fits, "storage {} ({}) does not fit the storage that it belongs to.", tie,
                    name_of(row.role));
    BOWLINE_REQUIRE(
        row.role != Role::master ||
            (row.slot == 0 && has_master(saved.storages[static_cast<size_t>(row.owner)])),
        "storage {} is master {} of storage {}, which is f32 itself.", tie, row.slot, row.owner);
    if (is_moment) {
      BOWLINE_TRY(check_moments(row, kept[row.slot].squares));
    }
  }
  for (const uint32_t tie : trained(saved)) {
    BOWLINE_REQUIRE(!pending || saved.owned(tie, Role::gradient, 0).has_value(),
                    "storage {} has no gradient, but the checkpoint holds an unfinished step.",
                    tie);
  }
  return {};
}

// The row of the checkpoint for row `tie` of the live table. Weights are found by tie index, rows
// of the optimizer by their owner.
const Storage* counterpart(const Table& saved, const Table& live, uint32_t tie) {
  const Storage& row = live.storages[tie];
  if (row.owner != params::kNoOwner) {
    const auto found = saved.owned(static_cast<uint32_t>(row.owner), row.role, row.slot);
    return found ? &saved.storages[*found] : nullptr;
  }
  return tie < saved.storages.size() && !saved.storages[tie].empty ? &saved.storages[tie] : nullptr;
}

Status check_counterparts(const Table& saved, const Table& live) {
  for (uint32_t tie = 0; tie < live.storages.size(); ++tie) {
    const Storage& row = live.storages[tie];
    if (row.empty || params::is_training(row.role)) {
      continue;
    }
    const Storage* from = counterpart(saved, live, tie);
    BOWLINE_REQUIRE(from != nullptr && from->shape == row.shape && from->dtype == row.dtype &&
                        from->encoding == row.encoding,
                    "storage {} ({}) is missing or has another shape or encoding.", tie,
                    name_of(row.role));
  }
  return {};
}

}  // namespace

Status TrainerState::save(const std::string& path, const Progress& data, FileSystem& files) {
  const auto ready = [&]() -> Status {
    BOWLINE_TRY(require_state("save()"));
    return masters_.fill(model_->table);
  };
  BOWLINE_TRY(agree(options_.processes.get(), ready()));
  BOWLINE_TRY(state_.micro_step > 0 && sums_apart() ? gather_sums() : Status());
  BOWLINE_TRY_ASSIGN(Table whole, gather_rows());
  model::TrainingState t;
  t.step = state_.step;
  t.applied_steps = state_.applied;
  t.epoch = data.epoch;
  t.sample_cursor = data.data_cursor;
  t.shuffle_seed = data.data_seed;
  t.micro_step = state_.micro_step;
  t.rng_seed = options_.seed;
  t.rng_counter = state_.counter;
  t.loss_log = state_.losses;
  t.loss_weights = state_.weights;
  BOWLINE_TRY_ASSIGN(t.plan_hash, Planner(*model_, options_).graph_hash());
  t.run = run_settings(options_);
  t.learning_rate = state_.rate;
  t.loss_scale = state_.loss_scale.value_or(1);
  t.loss_scale_good_steps = state_.good_steps;
  t.config = data.config;
  t.versions.emplace_back("bowline", version());
  t.versions.emplace_back("device", device_text(*home()));
  if (place_.rank != 0) {
    return agree(options_.processes.get(), {});
  }
  std::swap(model_->table, whole);
  const Status saved = graph::save_model(*model_, path, &t, files);
  std::swap(model_->table, whole);
  return agree(options_.processes.get(), saved);
}

Status TrainerState::pause(const std::string& path, const Progress& data, FileSystem& files) {
  BOWLINE_REQUIRE_CODE(place_.size == 1, Code::unsupported,
                       "{} processes train the model. Only the Trainer of a single process can "
                       "pause. Call save(), and destroy the Trainers.",
                       place_.size);
  BOWLINE_TRY(params::require_idle(model_->users.busy(), "pause()"));
  BOWLINE_TRY(save(path, data, files));
  BOWLINE_TRY_ASSIGN(const auto verified, model::VerifiedFile::open(path, files));
  BOWLINE_TRY_ASSIGN(const auto saved, graph::load_model(verified));
  Table staged = model_->table;
  params::drop_training(staged);
  for (uint32_t tie = 0; tie < staged.storages.size(); ++tie) {
    Storage row = staged.storages[tie];
    if (!row.home.block && row.home.shards.empty() && row.replicas.empty()) {
      continue;
    }
    const Storage* const from = counterpart(saved->table, model_->table, tie);
    if (from != nullptr && from->home.file != nullptr) {
      row.home = from->home;
    } else {  // a KV cache, for example
      BOWLINE_TRY_ASSIGN(const std::vector<std::byte> bytes, params::read_bytes(row));
      BOWLINE_TRY_ASSIGN(row.home, params::make_home(nullptr, bytes));
    }
    row.replicas.clear();
    ++row.generation;
    staged.put(tie, std::move(row));
  }
  staged.set_device(nullptr);
  params::keep_formats(staged);
  // From here on nothing can fail.
  snapshot_.reset();
  overridden_.reset();
  model_->table = std::move(staged);
  model_->users.leave_device();
  gradients_known_ = false;
  fault_ = TrainState::paused;
  return {};
}

Status TrainerState::check_record(const model::TrainingState& t, bool same_run, bool extend) const {
  BOWLINE_REQUIRE(t.applied_steps <= t.step,
                  "it counts {} applied steps, but only {} steps in all.", t.applied_steps, t.step);
  BOWLINE_REQUIRE(t.loss_log.size() == t.micro_step,
                  "it has {} losses for {} micro-batches of the unfinished step.",
                  t.loss_log.size(), t.micro_step);
  BOWLINE_REQUIRE(t.loss_weights.empty() || t.loss_weights.size() == t.micro_step,
                  "it has {} loss weights for {} micro-batches of the unfinished step.",
                  t.loss_weights.size(), t.micro_step);
  BOWLINE_REQUIRE(t.rng_counter >= t.micro_step,
                  "it counts {} micro-batches of the unfinished step, but only {} in all.",
                  t.micro_step, t.rng_counter);
  BOWLINE_REQUIRE(!t.learning_rate || (std::isfinite(*t.learning_rate) && *t.learning_rate >= 0),
                  "its learning rate is {}.", *t.learning_rate);
  for (const auto& [key, value] : run_settings(options_)) {
    if ((!same_run && key != "optimizer") || (extend && key == "total_steps")) {
      continue;
    }
    BOWLINE_REQUIRE(value_of(t.run, key) == value,
                    "it belongs to a run with another {}: {}, now {}.", key, value_of(t.run, key),
                    value);
  }
  BOWLINE_REQUIRE(!same_run || t.micro_step < options_.accumulation,
                  "its unfinished step already has {} of {} micro-batches.", t.micro_step,
                  options_.accumulation);
  return {};
}

TrainerState::Position TrainerState::position_of(const model::TrainingState& t) const {
  Position p;
  p.step = t.step;
  p.applied = t.applied_steps;
  p.counter = t.rng_counter;
  p.micro_step = static_cast<uint32_t>(t.micro_step);
  p.losses = t.loss_log;
  p.weights = t.loss_weights;
  p.rate = t.learning_rate;
  p.loss_scale = t.loss_scale;
  p.good_steps = t.loss_scale_good_steps;
  return p;
}

Status TrainerState::adopt(Table& staged, Position& position) const {
  BOWLINE_REQUIRE(model_->extras.training.has_value(),
                  "The model has no training state to continue: it was not opened from a "
                  "checkpoint, or a Trainer has already taken the training state.");
  const auto refuse = [](Status s) { return std::move(s).at("While continuing its training."); };
  BOWLINE_TRY(refuse(check_record(*model_->extras.training, false, false)));
  BOWLINE_TRY(refuse(check_rows(staged, options_.optimizer, false)));
  // The moments stay in their file until all plans are made.
  for (uint32_t tie = 0; tie < staged.storages.size(); ++tie) {
    const Role role = staged.storages[tie].role;
    if (role == Role::gradient ||
        (params::is_training(role) && !owns(static_cast<uint32_t>(staged.storages[tie].owner)))) {
      staged.make_empty(tie);
    }
  }
  position = position_of(*model_->extras.training);
  position.counter -= position.micro_step;
  position.micro_step = 0;
  position.losses.clear();
  position.weights.clear();
  return {};
}

namespace {

Progress progress_of(const model::TrainingState& t, const device::OpenDevice& device) {
  Progress out;
  out.step = t.step;
  out.micro_step = t.micro_step;
  out.epoch = t.epoch;
  out.data_cursor = t.sample_cursor;
  out.data_seed = t.shuffle_seed;
  out.config = t.config;
  const std::string here = device_text(device);
  if (const std::string_view there = value_of(t.versions, "device"); there != here) {
    out.notes.push_back(
        format("The checkpoint was written on {}; the run continues on {}, so its results may "
               "differ in their last bits.",
               there, here));
  }
  return out;
}

}  // namespace

Result<Progress> TrainerState::resume(const std::string& path, const ResumeOptions& options,
                                      FileSystem& files) {
  Result<Progress> resumed = resume_here(path, options, files);
  BOWLINE_TRY(agree(options_.processes.get(), resumed.status()));
  return resumed;
}

Result<Progress> TrainerState::resume_here(const std::string& path, const ResumeOptions& options,
                                           FileSystem& files) {
  BOWLINE_TRY(params::require_idle(model_->users.busy(), "resume()"));
  BOWLINE_REQUIRE(home() != nullptr, "The model is not on a device. Move it with Model::to().");
  BOWLINE_TRY_ASSIGN(const auto verified, model::VerifiedFile::open(path, files));
  // Verify every checksum before anything is used.
  BOWLINE_TRY(verified->verify_all());
  BOWLINE_TRY_ASSIGN(const auto saved, graph::load_model(verified));
  const std::optional<model::TrainingState>& t = saved->extras.training;
  const auto check = [&]() -> Status {
    BOWLINE_REQUIRE(t.has_value(), "it is a model file without a training state.");
    BOWLINE_TRY(check_parameters(saved->table, model_->table));
    BOWLINE_TRY(check_record(*t, true, options.extend));
    BOWLINE_TRY_ASSIGN(const uint64_t hash, Planner(*model_, options_).graph_hash());
    BOWLINE_REQUIRE(t->plan_hash == hash,
                    "its graph differs from that of \"{}\": another operator, attribute (heads, "
                    "dropout, ...), shape or order.",
                    options_.entry_point);
    BOWLINE_TRY(check_rows(saved->table, options_.optimizer, t->micro_step > 0));
    return check_counterparts(saved->table, model_->table);
  };
  if (Status s = check(); !s.ok()) {
    return Status(Code::bad_file, format("\"{}\" cannot be resumed: {}", path, s.message()));
  }
  Result<Progress> out = progress_of(*t, *home());
  Position position = position_of(*t);
  if (unread_) {
    unread_.reset();
    fault_ = TrainState::damaged;
  }
  BOWLINE_TRY(prepare());
  BOWLINE_TRY(write_rows(saved->table, t->micro_step > 0));
  BOWLINE_TRY(t->micro_step > 0 && sums_apart() ? take_sums() : Status());
  // Older files have no loss weights. They added the gradients of micro-batches unweighted.
  position.weights.resize(position.losses.size(), prepared_.weight_unit);
  // From here on nothing can fail.
  state_ = std::move(position);
  gradients_known_ = state_.micro_step > 0;
  states_.forget();
  fault_ = TrainState::ready;
  return out;
}

// Writes in place, so the device never holds old and new bytes at the same time.
Status TrainerState::write_rows(const Table& saved, bool pending) {
  Table staged = model_->table;
  // Also adds the rows of storages that are frozen now, in case they are thawed later.
  for (const Storage& row : saved.storages) {
    const bool is_kept = row.role != Role::gradient && params::is_training(row.role) && !row.empty;
    if (is_kept && owns(static_cast<uint32_t>(row.owner))) {
      add_row(staged, static_cast<uint32_t>(row.owner), row.role, row.slot, row.shape);
    }
  }
  device::Demand demand;
  add_waiting(staged, demand);
  BOWLINE_TRY(prepared_.device->require_room(demand).at("While reserving memory for moments."));
  BOWLINE_TRY(place_waiting(staged));
  std::vector<std::byte> scratch;
  for (uint32_t tie = 0; tie < staged.storages.size(); ++tie) {
    const Storage& row = staged.storages[tie];
    if (row.empty || (row.role == Role::gradient && !pending)) {
      continue;  // gradients are not kept between steps
    }
    const device::Block& block = *row.home.block;
    if (const Storage* from = counterpart(saved, staged, tie); from != nullptr) {
      BOWLINE_TRY_ASSIGN(const params::Bytes bytes, params::read_all(*from, scratch));
      BOWLINE_TRY(block.write(0, bytes));
    } else if (row.role != Role::master) {
      BOWLINE_TRY(block.fill(std::byte{0}));
    }
    staged.wrote(tie);
    fault_ = TrainState::damaged;
  }
  masters_.agree(saved, staged);
  model_->table = std::move(staged);
  return {};
}

}  // namespace bowline::detail::train
