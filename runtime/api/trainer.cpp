// The members of bowline::Trainer.
#include "train/trainer.h"

#include "api/internals.h"
#include "base/boundary.h"
#include "bowline.h"

namespace bowline {

Trainer::Trainer(std::unique_ptr<train::TrainerState> state) : state_(std::move(state)) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

Result<Trainer> Trainer::create(Model& model, const Device& device, const TrainOptions& options) {
  const auto& of = Internals::state(model);
  return guarded(of, "model", [&](graph::ModelState&) -> Result<Trainer> {
    BOWLINE_REQUIRE_CODE(kHasTraining, Code::unsupported,
                         "This build of Bowline cannot train: BOWLINE_TRAINING is OFF.");
    auto state = std::make_unique<train::TrainerState>(of, options);
    BOWLINE_TRY(state->start(Internals::open(device).get()));
    return Trainer(std::move(state));
  });
}

using train::TrainerState;

namespace {

// Like guarded(), but fails inside a gradient hook, because the step has not ended.
template <class Call>
auto between_steps(const std::unique_ptr<TrainerState>& state, const Call& call) {
  return guarded(state, "trainer", [&](TrainerState& s) -> decltype(call(s)) {
    BOWLINE_TRY(s.require_no_hook());
    return call(s);
  });
}

}  // namespace

Result<std::optional<StepReport>> Trainer::micro_step(std::span<const Tensor> batch,
                                                      std::span<const Tensor> overrides) {
  return between_steps(state_, [&](TrainerState& s) { return s.micro_step(batch, overrides); });
}

void Trainer::set_gradient_hook(GradientHook hook) {
  if (state_ != nullptr) {
    state_->set_gradient_hook(std::move(hook));
  }
}

Result<StepReport> Trainer::step(std::span<const std::span<const Tensor>> batches) {
  return between_steps(state_, [&](TrainerState& s) -> Result<StepReport> {
    const uint32_t k = s.options().accumulation;
    BOWLINE_REQUIRE(
        batches.size() == k,
        "{} batches are given, but a step has {} micro-batches (TrainOptions::accumulation).",
        batches.size(), k);
    BOWLINE_TRY(s.weigh_all(batches));
    std::optional<StepReport> report;
    while (!report) {
      const uint64_t mine = uint64_t{s.accumulated()} + s.place().rank;
      BOWLINE_TRY_ASSIGN(report,
                         s.micro_step(mine < k ? batches[mine] : std::span<const Tensor>()));
    }
    return *report;
  });
}

bool Trainer::needs_loss_weights() const {
  return state_ != nullptr && state_->needs_loss_weights();
}
Status Trainer::add_loss_weights(std::span<const Tensor> batch) {
  return between_steps(state_, [&](TrainerState& s) { return s.add_loss_weights(batch); });
}

Result<float> Trainer::evaluate(std::span<const Tensor> batch) {
  return between_steps(state_, [&](TrainerState& s) { return s.evaluate(batch); });
}
Result<float> Trainer::evaluate(std::span<const Tensor> batch, std::span<const Tensor> outputs) {
  return between_steps(state_, [&](TrainerState& s) { return s.evaluate(batch, outputs); });
}
Result<std::vector<NodeTime>> Trainer::profile(std::span<const Tensor> batch) {
  return between_steps(state_, [&](TrainerState& s) { return s.profile(batch); });
}
Status Trainer::gradient(std::string_view name, const Tensor& out) const {
  return guarded(state_, "trainer", [&](const TrainerState& s) { return s.gradient(name, out); });
}
Status Trainer::set_learning_rate(std::optional<float> rate) {
  return between_steps(state_, [&](TrainerState& s) { return s.set_learning_rate(rate); });
}
Status Trainer::snapshot() {
  return between_steps(state_, [](TrainerState& s) { return s.snapshot(); });
}
Status Trainer::rollback() {
  return between_steps(state_, [](TrainerState& s) { return s.rollback(); });
}
void Trainer::cancel() {
  if (state_ != nullptr) {
    state_->cancel();
  }
}
Status Trainer::save(const std::string& path, const Progress& data) const {
  return between_steps(state_, [&](TrainerState& s) { return s.save(path, data); });
}
Status Trainer::pause(const std::string& path, const Progress& data) {
  return between_steps(state_, [&](TrainerState& s) { return s.pause(path, data); });
}
Result<Progress> Trainer::resume(const std::string& path, const ResumeOptions& options) {
  return between_steps(state_, [&](TrainerState& s) { return s.resume(path, options); });
}
TrainState Trainer::state() const {
  return state_ == nullptr ? TrainState::ready : state_->state();
}
Status Trainer::restart_step() {
  return between_steps(state_, [](TrainerState& s) { return s.restart_step(); });
}
uint32_t Trainer::accumulated() const { return state_ == nullptr ? 0 : state_->accumulated(); }
uint64_t Trainer::steps() const { return state_ == nullptr ? 0 : state_->steps(); }
MemoryReport Trainer::memory() const {
  return guarded(state_, "trainer", [](const TrainerState& s) { return s.memory(); });
}
Counters Trainer::counters() const {
  return guarded(state_, "trainer", [](const TrainerState& s) { return s.counters(); });
}
Result<PlanInfo> Trainer::describe() const {
  return guarded(state_, "trainer", [](const TrainerState& s) { return s.describe(); });
}
Result<std::string> Trainer::listing(std::string_view part, bool columns) const {
  return guarded(state_, "trainer",
                 [&](const TrainerState& s) { return s.listing(part, columns); });
}

}  // namespace bowline
