// The life of a trainer, what is asked of it between steps, and the members of bowline::Trainer.
#include "train/trainer.h"

#include <cmath>

#include "core/boundary.h"
#include "params/verbs.h"
#include "train/options.h"

namespace bowline {
namespace train {

TrainerState::TrainerState(std::shared_ptr<graph::ModelState> model, TrainOptions options)
    : model_(std::move(model)), options_(std::move(options)) {
  model_->users.push_back(this);
}

TrainerState::~TrainerState() {
  std::erase(model_->users, this);
  if (model_->trainer == this) {
    model_->trainer = nullptr;
    params::drop_training(model_->table);
  }
}

Status TrainerState::start(const Device& device) {
  BOWLINE_REQUIRE(model_->trainer == nullptr,
                  "The model is busy: another Trainer trains it, and a model has one at a time.");
  BOWLINE_TRY(check_options(options_));
  BOWLINE_TRY(check_groups(model_->table, options_));
  params::Table staged = model_->table;
  Position position;
  if (options_.start == TrainStart::continue_) {
    BOWLINE_TRY(adopt(staged, position));
  } else {
    params::drop_training(staged);
  }
  BOWLINE_TRY(plan(std::move(staged), &device));
  state_ = std::move(position);
  model_->training.reset();
  model_->trainer = this;
  return {};
}

// What is not read back yet lies on the old device, and stays until it is read.
void TrainerState::leave_device() {
  if (!unread_) {
    drop_plans();
    device_.reset();
  }
}

Status TrainerState::gradient(std::string_view name, const Tensor& out) const {
  BOWLINE_TRY(require_state("gradient()"));
  const params::Table& table = model_->table;
  BOWLINE_ASSIGN(const uint32_t index, table.require(name));
  params::ParameterRow parameter = table.parameters[index];
  const auto row = table.owned(parameter.tie, params::Role::gradient, 0);
  BOWLINE_REQUIRE(row.has_value(), "Parameter \"{}\" is not trained: it has no gradient.", name);
  BOWLINE_REQUIRE(gradients_known_,
                  "There is no gradient of \"{}\" yet: no micro-batch was run since the start or "
                  "the last restore.",
                  name);
  parameter.tie = *row;
  return params::read_values(parameter, table.storages[*row], out);
}

Status TrainerState::set_learning_rate(std::optional<float> rate) {
  BOWLINE_REQUIRE(!rate || (std::isfinite(*rate) && *rate >= 0),
                  "The learning rate is {}; it is a number from 0 on.", rate.value_or(0));
  state_.rate = rate;
  return {};
}

}  // namespace train

Trainer::Trainer(std::unique_ptr<train::TrainerState> state) : state_(std::move(state)) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

Result<Trainer> Trainer::create(Model& model, const Device& device, const TrainOptions& options) {
  return guarded(model.state(), "model", [&](graph::ModelState&) -> Result<Trainer> {
    auto state = std::make_unique<train::TrainerState>(model.state(), options);
    BOWLINE_TRY(state->start(device));
    return Trainer(std::move(state));
  });
}

using train::TrainerState;

Result<std::optional<StepReport>> Trainer::micro_step(std::span<const Tensor> batch) {
  return guarded(state_, "trainer", [&](TrainerState& s) { return s.micro_step(batch); });
}

Result<StepReport> Trainer::step(std::span<const std::span<const Tensor>> batches) {
  return guarded(state_, "trainer", [&](TrainerState& s) -> Result<StepReport> {
    const uint32_t k = s.options().accumulation;
    BOWLINE_REQUIRE(batches.size() == k, "{} batches are given for an accumulation of {}.",
                    batches.size(), k);
    std::optional<StepReport> report;
    for (uint32_t i = s.accumulated(); i < k; ++i) {
      BOWLINE_ASSIGN(report, s.micro_step(batches[i]));
    }
    return *report;
  });
}

Result<float> Trainer::evaluate(std::span<const Tensor> batch) {
  return guarded(state_, "trainer", [&](TrainerState& s) { return s.evaluate(batch); });
}
Result<float> Trainer::evaluate(std::span<const Tensor> batch, std::span<const Tensor> outputs) {
  return guarded(state_, "trainer", [&](TrainerState& s) { return s.evaluate(batch, outputs); });
}
Result<std::vector<NodeTime>> Trainer::profile(std::span<const Tensor> batch) {
  return guarded(state_, "trainer", [&](TrainerState& s) { return s.profile(batch); });
}
Status Trainer::gradient(std::string_view name, const Tensor& out) const {
  return guarded(state_, "trainer", [&](const TrainerState& s) { return s.gradient(name, out); });
}
Status Trainer::set_learning_rate(std::optional<float> rate) {
  return guarded(state_, "trainer", [&](TrainerState& s) { return s.set_learning_rate(rate); });
}
Status Trainer::snapshot() {
  return guarded(state_, "trainer", [](TrainerState& s) { return s.snapshot(); });
}
Status Trainer::rollback() {
  return guarded(state_, "trainer", [](TrainerState& s) { return s.rollback(); });
}
void Trainer::cancel() {
  if (state_ != nullptr) {
    state_->cancel();
  }
}
Status Trainer::save(const std::string& path, const Progress& data) const {
  return guarded(state_, "trainer", [&](const TrainerState& s) { return s.save(path, data); });
}
Result<Progress> Trainer::resume(const std::string& path, const ResumeOptions& options) {
  return guarded(state_, "trainer", [&](TrainerState& s) { return s.resume(path, options); });
}
TrainState Trainer::state() const {
  return state_ == nullptr ? TrainState::ready : state_->state();
}
Status Trainer::restart_step() {
  return guarded(state_, "trainer", [](TrainerState& s) { return s.restart_step(); });
}
uint32_t Trainer::accumulated() const { return state_ == nullptr ? 0 : state_->accumulated(); }
uint64_t Trainer::steps() const { return state_ == nullptr ? 0 : state_->steps(); }
MemoryReport Trainer::memory() const {
  return guarded(state_, "trainer", [](const TrainerState& s) { return s.memory(); });
}
Counters Trainer::counters() const {
  return guarded(state_, "trainer", [](const TrainerState& s) { return s.counters(); });
}
Result<std::string> Trainer::listing(std::string_view part, bool columns) const {
  return guarded(state_, "trainer",
                 [&](const TrainerState& s) { return s.listing(part, columns); });
}

}  // namespace bowline
