// One training step.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/optimizers.h"
#include "exec/override.h"
#include "exec/profile.h"
#include "model/checksum.h"
#include "train/options.h"
#include "train/trainer.h"

namespace bowline::detail::train {

namespace {

// The value of grad_norm until the update writes a norm, which is never negative.
constexpr float kNoNorm = -1;

// A hash of all contents of a batch. Calls with equal hashes count as the same call. A hash needs
// no allocation to remember a submitted batch.
uint64_t hash_of(std::span<const Tensor> batch) {
  uint64_t hash = batch.size();
  for (const Tensor& t : batch) {
    const Result<Shape> shape = Shape::checked(t.shape);
    const auto elements = static_cast<uint64_t>(shape.ok() ? shape.value().elements() : 0);
    const std::span bytes(static_cast<const std::byte*>(t.data), elements * size_of(t.dtype));
    const uint64_t parts[] = {
        hash, model::checksum(std::as_bytes(std::span(t.name))),
        model::checksum(std::as_bytes(std::span(t.shape.begin(), t.shape.end()))),
        static_cast<uint64_t>(t.dtype), t.data == nullptr ? 0 : model::checksum(bytes)};
    hash = model::checksum(std::as_bytes(std::span(parts)));
  }
  return hash;
}

// Calls a function when the scope ends, also after a failed allocation.
template <class Function>
class AtTheEnd {
 public:
  explicit AtTheEnd(Function function) : function_(std::move(function)) {}
  ~AtTheEnd() { function_(); }
  AtTheEnd(const AtTheEnd&) = delete;
  AtTheEnd& operator=(const AtTheEnd&) = delete;

 private:
  Function function_;
};

}  // namespace

void TrainerState::fill(exec::StepValues& values) const {
  const double t = static_cast<double>(state_.applied + 1);
  // A non-finite loss of any micro-batch prevents the update, not only that of the last.
  const bool finite = std::ranges::all_of(state_.losses, [](float l) { return std::isfinite(l); });
  const bool accumulate = state_.micro_step > 0;
  values.reset();
  values.head().accumulate = accumulate ? 1 : 0;
  values.set("training", 1u);
  values.set("seed", options_.seed);
  values.set("counter", static_cast<uint32_t>(state_.counter));
  values.set("grad_norm", kNoNorm);
  values.set("non_finite", finite ? 0u : 1u);
  values.set("learning_rate",
             state_.rate.value_or(learning_rate_at(options_.schedule, state_.step + 1)));
  const float loss_scale = state_.loss_scale.value_or(1);
  values.set("loss_scale", loss_scale);
  values.set("gradient_scale", gradient_scale(0));
  const OptimizerDef& optimizer = *optimizer_named(options_.optimizer.name);
  for (const OptimizerCorrection& c : optimizer.corrections) {
    const auto beta = static_cast<double>(setting_of(optimizer, options_.optimizer, c.setting));
    values.set(c.word, static_cast<float>(1 - std::pow(beta, t)));
  }
  values.set("update", static_cast<uint32_t>(state_.applied + 1));
}

float TrainerState::gradient_scale(double more) const {
  const double sum = std::accumulate(state_.weights.begin(), state_.weights.end(), more);
  const double share = sum == 0 ? 1.0 / options_.accumulation : prepared_.weight_unit / sum;
  return static_cast<float>(share) / state_.loss_scale.value_or(1);
}

Status TrainerState::forget_accumulation() {
  state_.counter -= state_.micro_step;
  state_.micro_step = 0;
  state_.losses.clear();
  state_.weights.clear();
  return put_back_states();
}

Status TrainerState::put_back_states() {
  Status written = states_.put_back(model_->table);
  if (!written.ok()) {
    fault_ = TrainState::damaged;
  }
  return written;
}

StepReport TrainerState::finish_step() {
  StepReport report;
  report.step = ++state_.step;
  double terms = 0;
  double sum = 0;
  for (size_t i = 0; i < state_.losses.size(); ++i) {
    // A micro-batch without terms adds nothing, whatever its loss is.
    terms += state_.weights[i] == 0 ? 0 : static_cast<double>(state_.losses[i]) * state_.weights[i];
    sum += state_.weights[i];
  }
  report.loss = static_cast<float>(sum == 0 ? 0 : terms / sum);
  report.grad_norm = prepared_.steps->get<float>("grad_norm");
  report.learning_rate = prepared_.steps->get<float>("learning_rate");
  report.loss_scale = state_.loss_scale.value_or(1);
  report.skipped = prepared_.steps->get<uint32_t>("non_finite") != 0;
  report.weights_non_finite = prepared_.steps->get<uint32_t>("weights_non_finite") != 0;
  state_.applied += report.skipped ? 0 : 1;
  state_.micro_step = 0;
  state_.losses.clear();
  state_.weights.clear();
  weighed_.clear();
  return report;
}

bool TrainerState::overflows() const {
  return prepared_.dynamic_scale && state_.loss_scale > 1.0f &&
         prepared_.steps->get<uint32_t>("non_finite") != 0 &&
         std::ranges::all_of(state_.losses, [](float l) { return std::isfinite(l); });
}

// Source: as LossScale; the factors are those of PyTorch's GradScaler.
void TrainerState::adapt_loss_scale(bool overflow) {
  constexpr float kMost = 0x1p24f;
  if (!prepared_.dynamic_scale) {
    return;
  }
  const float scale = *state_.loss_scale;
  if (overflow) {
    state_.loss_scale = std::max(scale / 2, 1.0f);
    state_.good_steps = 0;
  } else if (++state_.good_steps >= options_.precision.growth_interval) {
    state_.loss_scale = std::min(scale * 2, kMost);
    state_.good_steps = 0;
  }
}

Result<std::optional<StepReport>> TrainerState::micro_step(std::span<const Tensor> batch,
                                                           std::span<const Tensor> overrides) {
  const graph::Running running(*model_);
  if (unread_) {
    BOWLINE_REQUIRE(hash_of(batch) == unread_->batch,
                    "The previous micro-batch was submitted, but its result was not read back. "
                    "Call micro_step() with that batch again.");
    return read_back(batch);
  }
  if (sums_apart()) {
    BOWLINE_REQUIRE(overrides.empty(),
                    "micro_step() cannot use overrides here: TrainOptions::gradient_sum is "
                    "by_micro_batch, or several processes train the model. Omit the overrides.");
    return round(batch);
  }
  BOWLINE_TRY(require_state("micro_step()"));
  BOWLINE_TRY(prepare());
  BOWLINE_TRY(cancel_.answer("The step"));
  BOWLINE_TRY_ASSIGN(set_, prepared_.set_for(batch, options_));
  const Prepared::Set& set = prepared_.sets[set_];
  BOWLINE_TRY_ASSIGN(std::vector<float> factors, mean_factors(batch));
  BOWLINE_REQUIRE(
      factors.empty() || overrides.empty(),
      "micro_step() cannot use overrides here: the loss adds means with different "
      "divisors, and add_loss_weights() does not see overrides. Omit the overrides, or train with "
      "an accumulation of 1.");
  BOWLINE_TRY(states_.keep(model_->table, state_.micro_step > 0));
  params::reserve_more(state_.losses, 1);  // nothing fails on the host after the submission
  params::reserve_more(state_.weights, 1);
  if (next_hook_) {
    hook_ = std::move(*next_hook_);
    next_hook_.reset();
  }
  const bool last = state_.micro_step + 1 == options_.accumulation;
  const bool alone = last && (hook_ != nullptr || set.training.has_loss_weight);
  params::Table seen;  // what the overrides make of the table
  if (!overrides.empty()) {
    const plan::Plan& plan = set.accumulate.plan();
    BOWLINE_TRY_ASSIGN(seen,
                       exec::overridden(model_->table, overrides, plan.written, prepared_.device));
    BOWLINE_TRY_ASSIGN(exec::Segment segment,
                       exec::Segment::record(plan, seen, prepared_.device, prepared_.workspace));
    overridden_.emplace(std::move(segment));
    ++counters_.recordings;
  }
  exec::Submission submission(overrides.empty() ? model_->table : seen);
  submission.add(overrides.empty() ? set.accumulate : *overridden_);
  if (last && !alone) {
    submission.keep_whole();
    submission.add(set.update);
  }
  BOWLINE_TRY(write_batch(set, batch, factors));
  fill(*prepared_.steps);
  prepared_.steps->set("gradient_scale", gradient_scale(set.training.loss_terms));
  BOWLINE_TRY(exec::write_steps(*prepared_.device, prepared_.workspace, *prepared_.steps));
  if (Status s = submission.submit(*prepared_.device, &cancel_.flag()); !s.ok()) {
    if (s.code() == Code::cancelled) {
      return look_after_cancel();
    }
    look_after_failed_submit(last && !alone);
    return s;
  }
  if (alone) {
    BOWLINE_TRY(update_alone());
  }
  ++counters_.submits;
  counters_.launches = prepared_.launches_of(set_, options_);
  counters_.refreshes += submission.refreshed().copies;
  unread_.emplace(Unread{last, 0});
  const AtTheEnd remember_what_is_unread([&] {
    if (unread_) {
      unread_->batch = hash_of(batch);
    } else {
      overridden_.reset();
    }
  });
  return read_back(batch);
}

Status TrainerState::write_batch(const Prepared::Set& set, std::span<const Tensor> batch,
                                 std::span<float> factors) {
  const plan::Plan& plan = set.accumulate.plan();
  for (const Tensor& t : batch) {
    BOWLINE_REQUIRE(t.buffer == nullptr,
                    "Input \"{}\" of a batch is in a buffer of a device. Pass it in host memory.",
                    t.name);
  }
  if (factors.empty()) {
    return exec::write_inputs(*prepared_.device, prepared_.workspace, plan, batch,
                              *prepared_.steps);
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < factors.size(); ++i) {
    names.push_back(graph::factor_name(i));
  }
  std::vector<Tensor> all(batch.begin(), batch.end());
  for (size_t i = 0; i < factors.size(); ++i) {
    all.push_back({names[i], DType::f32, {}, &factors[i]});
  }
  return exec::write_inputs(*prepared_.device, prepared_.workspace, plan, all, *prepared_.steps);
}

Status TrainerState::add_loss_weights(std::span<const Tensor> batch) {
  const graph::Running running(*model_);
  BOWLINE_TRY(require_state("add_loss_weights()", true));
  BOWLINE_TRY(prepare());
  if (!needs_loss_weights()) {
    return {};
  }
  BOWLINE_TRY_ASSIGN(const size_t number, prepared_.set_for(batch, options_));
  const Prepared::Set& set = prepared_.sets[number];
  Weighed found{hash_of(batch), {}};
  if (set.weigh) {
    prepared_.steps->reset();
    BOWLINE_TRY_ASSIGN(const exec::Refreshed refreshed,
                       exec::run(*prepared_.device, prepared_.workspace, *set.weigh, nullptr,
                                 model_->table, batch, *prepared_.steps, cancel_));
    ++counters_.submits;
    counters_.refreshes += refreshed.copies;
    // Out-of-range indices are not reported here. The micro-batch itself reports them and names the
    // node.
  }
  size_t counted = 0;
  for (const graph::LossMean& mean : set.means) {
    double weight = mean.terms;
    if (mean.counted) {
      BOWLINE_TRY_ASSIGN(const float sum, prepared_.read_output(set.weigh->plan(), counted++));
      weight = static_cast<double>(sum);
    }
    found.weights.push_back(weight);
  }
  if (weighed_.size() == options_.accumulation) {
    weighed_.clear();
  }
  weighed_.push_back(std::move(found));
  return {};
}

Status TrainerState::weigh_all(std::span<const std::span<const Tensor>> batches) {
  // If a submitted micro-batch is unread, all micro-batches of its step were weighed before.
  if (options_.accumulation == 1 || state() != TrainState::ready) {
    return {};
  }
  const graph::Running running(*model_);
  BOWLINE_TRY(prepare());
  if (!needs_loss_weights()) {
    return {};
  }
  weighed_.clear();
  for (const std::span<const Tensor> batch : batches) {
    BOWLINE_TRY(add_loss_weights(batch));
  }
  return {};
}

Result<std::vector<float>> TrainerState::mean_factors(std::span<const Tensor> batch) const {
  std::vector<float> out;
  if (!needs_loss_weights()) {
    return out;
  }
  const bool all = weighed_.size() == options_.accumulation;
  const uint32_t position = state_.micro_step + place_.rank;
  BOWLINE_REQUIRE(
      all && weighed_[position].batch == hash_of(batch),
      "The loss adds means that are divided by different sums, and {}. Call step() with "
      "all {} micro-batches of the step, or add_loss_weights() with each of them in their order "
      "before the first micro_step().",
      all ? "add_loss_weights() got a different batch at this position"
          : "not all micro-batches of the step were weighed",
      options_.accumulation);
  for (size_t mean = 0; mean < weighed_[0].weights.size(); ++mean) {
    double sum = 0;
    for (const Weighed& w : weighed_) {
      sum += w.weights[mean];
    }
    const double share = sum == 0 ? 0 : weighed_[position].weights[mean] / sum;
    out.push_back(static_cast<float>(share * options_.accumulation));
  }
  return out;
}

Status TrainerState::update_alone() {
  const auto before = [&]() -> Status {
    BOWLINE_TRY(prepared_.device->wait());
    BOWLINE_TRY(exec::read_steps(*prepared_.device, prepared_.workspace, *prepared_.steps));
    BOWLINE_TRY_ASSIGN(const double weight, prepared_.read_weight(prepared_.sets[set_]));
    prepared_.steps->set("gradient_scale", gradient_scale(weight));
    BOWLINE_TRY(exec::write_steps(*prepared_.device, prepared_.workspace, *prepared_.steps));
    const params::Table& table = model_->table;
    for (uint32_t tie = 0; hook_ != nullptr && tie < table.storages.size(); ++tie) {
      const auto row = table.owned(tie, params::Role::gradient, 0);
      // After an out-of-range index the gradients are meaningless, and the update does nothing.
      if (row && !table.storages[*row].empty && prepared_.steps->head().error == 0) {
        BOWLINE_TRY(call_hook(tie, *row));
      }
    }
    return {};
  };
  if (Status s = before(); !s.ok()) {
    look_after_failed_submit(false);
    return s;
  }
  exec::Submission update(model_->table);
  update.add(prepared_.sets[set_].update);
  if (Status s = update.submit(*prepared_.device); !s.ok()) {
    look_after_failed_submit(true);
    return s;
  }
  ++counters_.submits;
  return {};
}

void TrainerState::set_gradient_hook(GradientHook hook) {
  (hook_runs_ ? next_hook_.emplace() : hook_) = std::move(hook);
}

Status TrainerState::require_no_hook() const {
  BOWLINE_REQUIRE(!hook_runs_, "The trainer is busy: its gradient hook runs inside a step.");
  return {};
}

Status TrainerState::call_hook(uint32_t tie, uint32_t row) {
  const params::Table& table = model_->table;
  const params::Storage& storage = table.storages[row];
  BOWLINE_TRY_ASSIGN(std::vector<std::byte> bytes, params::read_bytes(storage));
  std::vector<float> gradient(bytes.size() / sizeof(float));
  // The gradient row holds the sum over the terms of all micro-batches, times the loss scale.
  const auto share = prepared_.steps->get<float>("gradient_scale");
  std::memcpy(gradient.data(), bytes.data(), bytes.size());
  for (float& g : gradient) {
    g *= share;
  }
  const std::vector<float> seen = gradient;
  GradientInfo info{tie, {}, storage.shape.dims(), state_.step + 1};
  for (const uint32_t user : params::sorted(table.users(tie))) {
    info.parameters.push_back(table.parameters[user].name);
  }
  ++counters_.hook_calls;
  const Inside inside(hook_runs_);
  BOWLINE_TRY(hook_(info, gradient));
  if (std::memcmp(seen.data(), gradient.data(), bytes.size()) == 0) {
    return {};
  }
  for (size_t i = 0; i < gradient.size(); ++i) {
    if (std::memcmp(&seen[i], &gradient[i], sizeof(float)) != 0) {
      const float value = gradient[i] / share;
      std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof(float));
    }
  }
  return storage.home.block->write(0, bytes);
}

Result<std::optional<StepReport>> TrainerState::read_back(std::span<const Tensor> batch) {
  const plan::Plan& plan = prepared_.sets[set_].accumulate.plan();
  BOWLINE_TRY(prepared_.device->wait());
  BOWLINE_TRY(exec::read_steps(*prepared_.device, prepared_.workspace, *prepared_.steps));
  if (Status s = exec::check_error(prepared_.steps->head(), plan); !s.ok()) {
    // The gradients include a bad batch, so the step starts again. The update did nothing.
    unread_.reset();
    exec::bump_versions(model_->table, plan);
    const Status put_back = forget_accumulation();
    return put_back.ok() ? std::move(s) : std::move(s).at(put_back.message());
  }
  BOWLINE_TRY_ASSIGN(const float loss, prepared_.read_output(plan, 0));
  BOWLINE_TRY_ASSIGN(const double weight, prepared_.read_weight(prepared_.sets[set_]));
  const bool last = unread_->last;
  unread_.reset();
  exec::bump_versions(model_->table, plan);
  gradients_known_ = true;
  gradient_loss_scale_ = state_.loss_scale.value_or(1);
  const bool skipped = prepared_.steps->get<uint32_t>("non_finite") != 0;
  state_.losses.push_back(loss);
  state_.weights.push_back(weight);
  const bool overflow = last && overflows();
  const bool bad = !std::isfinite(loss) || (last && skipped && !overflow);
  if (bad && nonfinite_.stops()) {
    return non_finite_error(batch, loss, prepared_.steps->get<float>("grad_norm"));
  }
  ++state_.counter;
  ++state_.micro_step;
  if (!last) {
    return std::optional<StepReport>();
  }
  if (skipped) {
    BOWLINE_TRY(put_back_states());
  } else {
    const exec::Segment& update = prepared_.sets[set_].update;
    exec::bump_versions(model_->table, update.plan());
    update.wrote_copies(model_->table);
    masters_.updated(model_->table);
  }
  return conclude_step(overflow);
}

Result<std::optional<StepReport>> TrainerState::conclude_step(bool overflow) {
  const StepReport report = finish_step();
  adapt_loss_scale(overflow);
  if (overflow) {
    return std::optional(report);
  }
  std::function<Status()> roll_back;
  if (snapshot_) {
    roll_back = [this] { return restore(); };
  }
  BOWLINE_TRY_ASSIGN(StepReport concluded, nonfinite_.conclude(report, model_->table, roll_back));
  return std::optional(concluded);
}

Status TrainerState::non_finite_error(std::span<const Tensor> batch, float loss, float norm) {
  BOWLINE_TRY(put_back_states());
  const std::vector<BoundDim> dims = sets_of_dims(options_)[set_];
  const std::string where = describe_non_finite(
      Planner(*model_, options_).bound_loss(dims, prepared_.device->capabilities().compute), batch,
      model_->table, prepared_.device, [this](exec::StepValues& values) { fill(values); });
  const std::string what = std::isfinite(loss) ? format("the gradient norm is {}", norm)
                                               : format("the loss is {}", loss);
  BOWLINE_TRY(forget_accumulation());
  return Status(Code::non_finite, format("Step {}: {}; the update was not applied. {}",
                                         state_.step + 1, what, where));
}

// A failed submission may have run some of its pieces. The next first micro-batch overwrites the
// results of the accumulate segment. The norm shows whether the update began, because the update
// writes it first.
void TrainerState::look_after_failed_submit(bool last) {
  if (last) {
    Status read = prepared_.device->wait();
    if (read.ok()) {
      read = exec::read_steps(*prepared_.device, prepared_.workspace, *prepared_.steps);
    }
    if (!read.ok() || prepared_.steps->get<float>("grad_norm") != kNoNorm) {
      fault_ = TrainState::damaged;
      return;
    }
  }
  fault_ = state_.micro_step > 0 ? TrainState::gradients_lost : TrainState::ready;
  if (fault_ == TrainState::ready) {
    (void)put_back_states().ok();  // else the weights are damaged
  }
}

// The micro-batch may have added a part of its gradients to those of the unfinished step.
Status TrainerState::look_after_cancel() {
  gradients_known_ = false;
  if (Status waited = prepared_.device->wait(); !waited.ok()) {
    look_after_failed_submit(false);
    return waited;
  }
  BOWLINE_TRY(forget_accumulation());
  return cancel_.answer("The step");
}

TrainState TrainerState::state() const { return unread_ ? TrainState::unread : fault_; }

Status TrainerState::require_state(std::string_view call, bool whole_weights_suffice) const {
  const TrainState now = state();
  BOWLINE_REQUIRE(now != TrainState::paused,
                  "{} cannot run now: the trainer is paused. Call Model::to(), then resume().",
                  call);
  BOWLINE_REQUIRE(now != TrainState::damaged,
                  "{} needs complete weights, but a failure left them partly written. Call "
                  "rollback() or resume() first.",
                  call);
  BOWLINE_REQUIRE(now != TrainState::unread,
                  "{} cannot run now: a micro-batch was submitted, but its result was not read "
                  "back. Call micro_step() with that batch again.",
                  call);
  BOWLINE_REQUIRE(now != TrainState::gradients_lost || whole_weights_suffice,
                  "{} needs the gradients of the unfinished step, but a failure lost them. Call "
                  "restart_step(), rollback() or resume() first.",
                  call);
  return {};
}

Status TrainerState::restart_step() {
  BOWLINE_TRY(require_state("restart_step()", true));
  fault_ = TrainState::ready;
  return forget_accumulation();
}

Result<std::vector<NodeTime>> TrainerState::profile(std::span<const Tensor> batch) {
  BOWLINE_TRY(require_state("profile()"));
  BOWLINE_TRY(prepare());
  BOWLINE_TRY_ASSIGN(const exec::Clock clock, exec::Clock::start(prepared_.device));
  BOWLINE_TRY(micro_step(batch).status());
  std::vector<NodeTime> times;
  clock.add(prepared_.sets[set_].accumulate, times);
  clock.add(prepared_.sets[set_].update, times);
  return times;
}

Result<float> TrainerState::evaluate(std::span<const Tensor> batch) {
  const graph::Running running(*model_);
  BOWLINE_TRY(require_state("evaluate()", true));
  BOWLINE_TRY(prepare());
  BOWLINE_TRY_ASSIGN(const size_t number, prepared_.set_for(batch, options_));
  const exec::Segment& segment = prepared_.sets[number].evaluate;
  const plan::Plan& plan = segment.plan();
  prepared_.steps->reset();
  BOWLINE_TRY_ASSIGN(const exec::Refreshed refreshed,
                     exec::run(*prepared_.device, prepared_.workspace, segment, nullptr,
                               model_->table, batch, *prepared_.steps, cancel_));
  ++counters_.submits;
  counters_.refreshes += refreshed.copies;
  BOWLINE_TRY(exec::check_error(prepared_.steps->head(), plan));
  return prepared_.read_output(plan, 0);
}

Result<float> TrainerState::evaluate(std::span<const Tensor> batch,
                                     std::span<const Tensor> outputs) {
  BOWLINE_TRY(require_state("evaluate()", true));
  if (!outputs_) {
    std::vector<BoundEntryPoint> entry_points;
    for (std::vector<BoundDim>& dims : sets_of_dims(options_)) {
      entry_points.push_back(
          {options_.entry_point, std::move(dims), options_.precision.compute_dtype});
    }
    outputs_ = std::make_unique<exec::SessionState>(model_, std::move(entry_points),
                                                    options_.budget, &cancel_);
  }
  float loss = 0;
  std::vector<Tensor> all(outputs.begin(), outputs.end());
  all.push_back({options_.loss, DType::f32, {}, &loss});
  BOWLINE_TRY(outputs_->run({}, batch, all, {}));
  ++counters_.submits;
  return loss;
}

}  // namespace bowline::detail::train
