// One training step.
#include <cmath>

#include "core/boundary.h"
#include "exec/profile.h"
#include "train/trainer.h"

namespace bowline {
namespace train {

using device::StepScalars;

StepScalars TrainerState::scalars() const {
  StepScalars s;
  s.accumulate = state_.micro_step > 0 ? 1 : 0;
  s.accumulate_factor = static_cast<float>(s.accumulate);
  s.training = 1;
  s.seed[0] = static_cast<uint32_t>(options_.seed);
  s.seed[1] = static_cast<uint32_t>(options_.seed >> 32);
  s.counter = static_cast<uint32_t>(state_.counter);
  s.learning_rate = learning_rate_at(options_.schedule, state_.step + 1);
  s.gradient_scale = 1.0f / static_cast<float>(options_.accumulation);
  const double t = static_cast<double>(state_.applied + 1);
  s.bias_correction1 =
      static_cast<float>(1 - std::pow(static_cast<double>(options_.optimizer.beta1), t));
  s.bias_correction2 =
      static_cast<float>(1 - std::pow(static_cast<double>(options_.optimizer.beta2), t));
  s.first_update = state_.applied == 0 ? 1 : 0;
  return s;
}

void TrainerState::bump_versions(const plan::Plan& plan) {
  for (const uint32_t tie : plan.written) {
    ++model_->table.storages[tie].version;
  }
}

StepReport TrainerState::finish_step(const StepScalars& after) {
  StepReport report;
  report.step = ++state_.step;
  double sum = 0;
  for (const float loss : state_.losses) {
    sum += static_cast<double>(loss);
  }
  report.loss = static_cast<float>(sum / static_cast<double>(state_.losses.size()));
  report.grad_norm = after.grad_norm;
  report.learning_rate = after.learning_rate;
  report.skipped = after.non_finite != 0;
  state_.applied += report.skipped ? 0 : 1;
  state_.micro_step = 0;
  state_.losses.clear();
  return report;
}

Result<float> TrainerState::read_loss(const plan::Plan& plan) const {
  float loss = 0;
  BOWLINE_TRY(device_->copy_out(std::as_writable_bytes(std::span(&loss, 1)),
                                workspace_.io->buffer(), plan.outputs[0].offset));
  return loss;
}

Result<std::optional<StepReport>> TrainerState::micro_step(std::span<const Tensor> batch) {
  const graph::Running running(*model_);
  BOWLINE_TRY(prepare());
  if (cancelled_.exchange(false)) {
    return Status(Code::cancelled,
                  "The step was cancelled before it was submitted; the weights are as before.");
  }
  params::reserve_more(state_.losses, 1);  // nothing fails on the host after the submission
  const bool last = state_.micro_step + 1 == options_.accumulation;
  const plan::Plan& plan = accumulate_->plan();
  device::Recording* const recordings[] = {accumulate_->recording(), update_->recording()};
  BOWLINE_ASSIGN(const StepScalars after,
                 exec::submit(*device_, workspace_, plan, std::span(recordings).first(last ? 2 : 1),
                              batch, scalars()));
  ++counters_.submits;
  bump_versions(plan);
  if (Status s = exec::check_scalars(after, plan); !s.ok()) {
    // The gradients hold a bad batch: the step begins anew. The update did nothing.
    state_.micro_step = 0;
    state_.losses.clear();
    return s;
  }
  BOWLINE_ASSIGN(const float loss, read_loss(plan));
  state_.losses.push_back(loss);
  ++state_.counter;
  ++state_.micro_step;
  if (!last) {
    return std::optional<StepReport>();
  }
  if (after.non_finite == 0) {
    bump_versions(update_->plan());
  }
  return std::optional(finish_step(after));
}

Result<std::vector<NodeTime>> TrainerState::profile(std::span<const Tensor> batch) {
  BOWLINE_TRY(prepare());
  BOWLINE_ASSIGN(const exec::Clock clock, exec::Clock::start(device_));
  BOWLINE_TRY(micro_step(batch).status());
  std::vector<NodeTime> times;
  clock.add(accumulate_->plan(), accumulate_->recording(), times);
  clock.add(update_->plan(), update_->recording(), times);
  return times;
}

Result<float> TrainerState::evaluate(std::span<const Tensor> batch) {
  const graph::Running running(*model_);
  BOWLINE_TRY(prepare());
  const plan::Plan& plan = evaluate_->plan();
  device::Recording* const recordings[] = {evaluate_->recording()};
  BOWLINE_ASSIGN(const StepScalars after,
                 exec::submit(*device_, workspace_, plan, recordings, batch, {}));
  ++counters_.submits;
  BOWLINE_TRY(exec::check_scalars(after, plan));
  return read_loss(plan);
}

Status TrainerState::snapshot() {
  Snapshot s;
  s.position = state_;
  for (const params::Storage& storage : model_->table.storages) {
    auto& bytes = s.bytes.emplace_back();
    if (!storage.empty) {
      BOWLINE_ASSIGN(bytes, params::read_bytes(storage));
    }
  }
  snapshot_ = std::move(s);
  return {};
}

Status TrainerState::rollback() {
  BOWLINE_REQUIRE(snapshot_.has_value(), "There is no snapshot to roll back to.");
  params::Table& table = model_->table;
  BOWLINE_REQUIRE(snapshot_->bytes.size() == table.storages.size(),
                  "The model has other storages than the snapshot.");
  // New blocks, so that a failure half way leaves the live ones alone.
  params::Table staged = table;
  for (size_t tie = 0; tie < staged.storages.size(); ++tie) {
    params::Storage& storage = staged.storages[tie];
    const auto& bytes = snapshot_->bytes[tie];
    if (storage.empty) {
      continue;
    }
    BOWLINE_ASSIGN(storage.home.block, device::Block::allocate(table.device(), bytes.size(),
                                                               device::MemoryKind::device));
    BOWLINE_TRY(table.device()->copy_in(storage.home.block->buffer(), 0, bytes));
    ++storage.version;
    ++storage.generation;
  }
  table = std::move(staged);
  state_ = snapshot_->position;
  return {};
}

}  // namespace train

Trainer::Trainer(std::unique_ptr<train::TrainerState> state) : state_(std::move(state)) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

Result<Trainer> Trainer::create(Model& model, const Device& device, const TrainOptions& options) {
  return guarded(model.state(), "model", [&](graph::ModelState& m) -> Result<Trainer> {
    BOWLINE_REQUIRE(options.accumulation >= 1, "The accumulation is 0.");
    BOWLINE_REQUIRE(device.handle() != nullptr && m.table.device() == device.handle(),
                    "The model does not lie on device {}; move it with Model::to().",
                    device.info().name);
    auto state = std::make_unique<train::TrainerState>(model.state(), options);
    BOWLINE_TRY(state->prepare());
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
    for (const std::span<const Tensor> batch : batches) {
      BOWLINE_ASSIGN(report, s.micro_step(batch));
    }
    BOWLINE_REQUIRE(report.has_value(), "The step began inside an accumulation.");
    return *report;
  });
}

Result<std::vector<NodeTime>> Trainer::profile(std::span<const Tensor> batch) {
  return guarded(state_, "trainer", [&](TrainerState& s) { return s.profile(batch); });
}
Result<float> Trainer::evaluate(std::span<const Tensor> batch) {
  return guarded(state_, "trainer", [&](TrainerState& s) { return s.evaluate(batch); });
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
Result<Progress> Trainer::resume(const std::string& path) {
  return guarded(state_, "trainer", [&](TrainerState& s) { return s.resume(path); });
}
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
