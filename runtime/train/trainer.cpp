// Creation and planning of a trainer, and its calls between steps.
#include "train/trainer.h"

#include <cmath>

#include "graph/fuse.h"
#include "params/verbs.h"
#include "train/optimizer.h"
#include "train/options.h"

namespace bowline::detail::train {

TrainerState::TrainerState(std::shared_ptr<graph::ModelState> model, TrainOptions options)
    : model_(std::move(model)),
      options_(std::move(options)),
      nonfinite_(options_),
      place_(place_of(options_)) {
  model_->users.add(*this);
}

TrainerState::~TrainerState() {
  if (model_->users.trainer() == this) {
    params::drop_training(model_->table);
  }
  model_->users.remove(*this);
}

Status TrainerState::start(const device::OpenDevice* device) {
  BOWLINE_REQUIRE_CODE(kHasProcesses || options_.processes == nullptr, Code::unsupported,
                       "This build of Bowline trains with one process: it was configured with "
                       "BOWLINE_PROCESSES=OFF. Set TrainOptions::processes to null.");
  const Status started = agree(options_.processes.get(), start_here(device));
  if (started.ok() && place_.size > 1) {
    return compare_processes();
  }
  return started;
}

Status TrainerState::start_here(const device::OpenDevice* device) {
  BOWLINE_REQUIRE(model_->users.trainer() == nullptr,
                  "The model is busy: it can have one Trainer at a time, and it has one.");
  BOWLINE_TRY(check_options(options_));
  BOWLINE_TRY(check_groups(model_->table, trained(model_->table), options_));
  params::Table staged = model_->table;
  Position position;
  if (options_.start == TrainStart::from_checkpoint) {
    BOWLINE_TRY(adopt(staged, position));
  } else {
    params::drop_training(staged);
  }
  masters_.agree(staged, staged);
  masters_.forget_written(staged);
  state_ = std::move(position);
  BOWLINE_TRY(plan(std::move(staged), device));
  model_->extras.training.reset();
  model_->users.set_trainer(*this);
  return {};
}

Status TrainerState::prepare() {
  if (!prepared_.match(model_->table)) {
    BOWLINE_TRY(plan(model_->table));
  }
  return masters_.fill(model_->table);
}

const std::shared_ptr<device::OpenDevice>& TrainerState::home() const {
  for (const uint32_t tie : trained(model_->table)) {
    // An offloaded storage has no block.
    if (const auto& block = model_->table.storages[tie].home.block; block != nullptr) {
      return block->device_handle();
    }
  }
  return prepared_.device != nullptr ? prepared_.device : model_->table.device();
}

Status TrainerState::plan(params::Table staged, std::optional<const device::OpenDevice*> wanted) {
  const Planner planner(*model_, options_, [this](exec::StepValues& values) { fill(values); });
  BOWLINE_REQUIRE(!trained(staged).empty(), "The model has no trainable storage.");
  BOWLINE_TRY_ASSIGN(std::vector<BoundLoss> bound, planner.bound_losses({}));
  BOWLINE_TRY_ASSIGN(const std::shared_ptr<device::OpenDevice> device,
                     exec::device_of(staged, graph::storages_of(bound[0].graph)));
  if (wanted) {
    BOWLINE_TRY(exec::require_on_device(device.get(), *wanted));
  }
  BOWLINE_REQUIRE(device != nullptr, "The model is not on a device. Move it with Model::to().");
  if (const std::optional<DType> compute = device->capabilities().compute) {
    BOWLINE_TRY_ASSIGN(bound, planner.bound_losses(compute));
  }
  // Only shapes decide this, so the memory budget does not change the training results.
  for (BoundLoss& b : bound) {
    graph::multiply_tables(b.graph);
  }
  add_rows(staged, options_);
  // The old plans belong to the old table. Drop them first, so that two arenas never exist at the
  // same time.
  prepared_.drop();
  BOWLINE_TRY_ASSIGN(Prepared fresh, train::prepare(planner, bound, staged, device));
  RunningStates states(fresh.sets[0].accumulate.plan(), staged);
  BOWLINE_REQUIRE_CODE(
      place_.size == 1 || states.empty(), Code::unsupported,
      "The entry point \"{}\" writes running statistics, which depend on the order "
      "of all micro-batches. Train it with one process.",
      options_.entry_point);
  std::optional<GradientSums> sums;
  if (sums_apart()) {
    sums.emplace(staged, options_);
  }
  // From here on nothing can fail.
  prepared_ = std::move(fresh);
  states_ = std::move(states);
  if (sums && state_.micro_step == 0) {
    sums_ = std::move(*sums);
  }
  sums_.unsettle();
  model_->table = std::move(staged);
  set_ = 0;
  if (!state_.loss_scale) {
    state_.loss_scale = prepared_.dynamic_scale              ? options_.precision.initial_scale
                        : options_.precision.loss_scale != 0 ? options_.precision.loss_scale
                                                             : 1;
  }
  counters_.plan_builds += prepared_.sets.size();
  for (const Prepared::Set& set : prepared_.sets) {
    set.for_each_segment([this](const exec::Segment&) { ++counters_.recordings; });
  }
  counters_.launches = prepared_.launches_of(0, options_);
  if (device->has_log()) {
    device->log(LogLevel::info, format("New plans to train \"{}\" on {}: {} sets of dimensions, {} "
                                       "bytes of activations.",
                                       options_.entry_point, device->info().name,
                                       prepared_.sets.size(), prepared_.workspace.arena_bytes()));
  }
  return {};
}

MemoryReport TrainerState::memory() const {
  MemoryReport m;
  prepared_.add_to(m);
  m.backend_bytes += sums_.device_bytes();
  if (outputs_) {
    const MemoryReport more = outputs_->memory();
    m.arena_bytes += more.arena_bytes;
    m.io_bytes += more.io_bytes;
    m.backend_bytes += more.backend_bytes;
  }
  exec::complete(m, model_->table, prepared_.device ? prepared_.device.get() : home().get());
  return m;
}

Result<std::string> TrainerState::listing(std::string_view part, bool columns) const {
  return prepared_.listing(part, columns, options_);
}

Result<PlanInfo> TrainerState::describe() const { return prepared_.describe(options_); }

// An unread result stays on the old device until it is read.
void TrainerState::leave_device() {
  if (!unread_) {
    prepared_.drop();
    prepared_.device.reset();
    end_link(state_.micro_step > 0);
  }
}

Status TrainerState::gradient(std::string_view name, const Tensor& out) const {
  BOWLINE_TRY(require_state("gradient()"));
  const params::Table& table = model_->table;
  BOWLINE_TRY_ASSIGN(const uint32_t index, table.require(name));
  params::ParameterRow parameter = table.parameters[index];
  const auto row = table.owned(parameter.tie, params::Role::gradient, 0);
  BOWLINE_REQUIRE(row.has_value(), "Parameter \"{}\" is not trained: it has no gradient.", name);
  BOWLINE_REQUIRE(gradients_known_,
                  "There is no gradient of \"{}\" yet: no micro-batch has run since the start or "
                  "the last restore.",
                  name);
  parameter.tie = *row;
  BOWLINE_TRY(params::read_values(parameter, table.storages[*row], out));
  if (gradient_loss_scale_ != 1) {
    const std::span<float> values(static_cast<float*>(out.data),
                                  static_cast<size_t>(Shape(out.shape).elements()));
    for (float& v : values) {
      v /= gradient_loss_scale_;
    }
  }
  return {};
}

Status TrainerState::set_learning_rate(std::optional<float> rate) {
  BOWLINE_REQUIRE(!rate || (std::isfinite(*rate) && *rate >= 0),
                  "The learning rate is {}; it must be finite and not negative.", rate.value_or(0));
  state_.rate = rate;
  return {};
}

}  // namespace bowline::detail::train
