// One training step whose gradients are summed by GradientSums: by micro-batch, or over processes.
// Each call of micro_step() is a round, in which each process trains with one micro-batch.
#include <algorithm>
#include <cmath>

#include "model/checksum.h"
#include "params/home.h"
#include "train/optimizer.h"
#include "train/options.h"
#include "train/trainer.h"

namespace bowline::detail::train {

namespace {

using params::Role;
using params::Storage;
using params::Table;

template <class T>
Status share_all(ProcessGroup* group, std::span<T> values) {
  if (!kHasProcesses || group == nullptr || group->size() == 1) {
    return {};
  }
  std::vector<std::span<std::byte>> parts;
  for (T& value : values) {
    parts.push_back(std::as_writable_bytes(std::span(&value, 1)));
  }
  return share(*group, parts);
}

// A checksum of the values of all storages that a run starts with.
Result<uint64_t> checksum_of(const Table& table) {
  std::vector<std::byte> scratch;
  uint64_t sum = 0;
  for (const Storage& s : table.storages) {
    if (s.empty || params::is_training(s.role) || !s.home.valid()) {
      continue;
    }
    BOWLINE_TRY_ASSIGN(const params::Bytes bytes, params::read_all(s, scratch));
    const uint64_t parts[] = {sum, model::checksum(bytes)};
    sum = model::checksum(std::as_bytes(std::span(parts)));
  }
  return sum;
}

std::string parameters_text(const Table& table) {
  std::string out;
  for (const params::ParameterRow& p : table.parameters) {
    const Storage& s = table.storages[p.tie];
    out += format("{} {}{} {}\n", p.name, s.dtype, s.shape, s.trainable);
  }
  return out;
}

}  // namespace

Status TrainerState::compare_processes() const {
  Items items = {{"the version of Bowline", std::string(version())}};
  for (const auto& [name, value] : run_settings(options_)) {
    items.emplace_back("the option " + name, value);
  }
  const std::string parameters = parameters_text(model_->table);
  items.emplace_back("the number of parameters", format("{}", model_->table.parameters.size()));
  items.emplace_back("the checksum of parameter names, shapes and dtypes",
                     format("{}", model::checksum(std::as_bytes(std::span(parameters)))));
  items.emplace_back("the list of ties", model_->table.list_ties());
  const auto add_hash = [&](std::string what, const Result<uint64_t>& hash) {
    items.emplace_back(std::move(what),
                       hash.ok() ? format("{}", hash.value()) : hash.status().message());
  };
  add_hash("the hash of the graph", Planner(*model_, options_).graph_hash());
  add_hash("the checksum of the weights", checksum_of(model_->table));
  return require_same(*options_.processes, items);
}

bool TrainerState::owns(uint32_t tie) const {
  return place_.size == 1 || owners(model_->table, place_.size)[tie] == place_.rank;
}

Status TrainerState::agree_or_restart(const Status& mine) {
  Status all = agree(options_.processes.get(), mine);
  if (!all.ok()) {
    const bool lost = all.code() == Code::device_lost || all.code() == Code::device_poisoned;
    const Status put_back = forget_accumulation();
    fault_ = fault_ == TrainState::ready && lost ? TrainState::gradients_lost : fault_;
    return put_back.ok() ? all : std::move(all).at(put_back.message());
  }
  return {};
}

Status TrainerState::agree_on_sums(const Status& mine) {
  Status all = agree_or_restart(mine);
  if (!all.ok()) {
    end_link(false);
  }
  return all;
}

void TrainerState::end_link(bool keep) {
  if (!sums_.unlink(keep).ok()) {
    fault_ = TrainState::gradients_lost;
  }
}

Result<std::optional<StepReport>> TrainerState::round(std::span<const Tensor> batch) {
  const uint32_t count = std::min(place_.size, options_.accumulation - state_.micro_step);
  bool submitted = false;
  const Result<Micro> mine = train_here(batch, count, submitted);
  if (place_.size == 1 && !submitted) {
    BOWLINE_TRY(Status(mine.status()));
  }
  BOWLINE_TRY(agree_or_restart(mine.status()));
  std::vector<Micro> all(place_.size);
  all[place_.rank] = mine.value();
  all[place_.rank].settled = sums_.settled() ? 1 : 0;
  Status same = share_all(options_.processes.get(), std::span(all));
  for (uint32_t r = 0; r < place_.size && same.ok(); ++r) {
    if (all[r].step != all[0].step || all[r].micro_step != all[0].micro_step) {
      same =
          Status(Code::bad_argument,
                 format("The processes are not at the same micro-batch: process 0 is at step {}, "
                        "micro-batch {}, process {} at step {}, micro-batch {}. Resume all "
                        "processes from the same checkpoint.",
                        all[0].step, all[0].micro_step, r, all[r].step, all[r].micro_step));
    }
  }
  BOWLINE_TRY(agree_or_restart(same));
  if (place_.size > 1 && std::ranges::any_of(all, [](const Micro& m) { return m.settled == 0; })) {
    BOWLINE_TRY(agree_or_restart(sums_.settle(model_->table, prepared_.device)));
  }
  BOWLINE_TRY(agree_on_sums(sum_round(count)));
  ++counters_.submits;
  counters_.launches = prepared_.launches_of(set_, options_);
  gradients_known_ = true;
  gradient_loss_scale_ = state_.loss_scale.value_or(1);
  bool finite = true;
  for (uint32_t r = 0; r < count; ++r) {
    state_.losses.push_back(static_cast<float>(all[r].loss));
    state_.weights.push_back(all[r].weight);
    finite = finite && std::isfinite(all[r].loss);
  }
  if (!finite && nonfinite_.stops()) {
    const Status here = std::isfinite(all[place_.rank].loss)
                            ? Status()
                            : non_finite_error(batch, static_cast<float>(all[place_.rank].loss), 0);
    return agree_or_restart(here);
  }
  state_.counter += count;
  state_.micro_step += count;
  if (state_.micro_step < options_.accumulation) {
    return std::optional<StepReport>();
  }
  return update_together(batch);
}

Result<TrainerState::Micro> TrainerState::train_here(std::span<const Tensor> batch, uint32_t count,
                                                     bool& submitted) {
  BOWLINE_TRY(require_state("micro_step()"));
  BOWLINE_TRY(prepare());
  BOWLINE_TRY(cancel_.answer("The step"));
  BOWLINE_TRY(states_.keep(model_->table, state_.micro_step > 0));
  params::reserve_more(state_.losses, count);
  params::reserve_more(state_.weights, count);
  Micro out{state_.step, state_.micro_step};
  const bool mine = place_.rank < count;
  BOWLINE_REQUIRE(
      mine || batch.empty(),
      "The step has no micro-batch for process {} in this round: it has {} micro-batches "
      "and {} are done. Pass an empty batch.",
      place_.rank, options_.accumulation, state_.micro_step);
  if (!mine) {
    return out;
  }
  BOWLINE_TRY_ASSIGN(set_, prepared_.set_for(batch, options_));
  const Prepared::Set& set = prepared_.sets[set_];
  BOWLINE_TRY_ASSIGN(std::vector<float> factors, mean_factors(batch));
  BOWLINE_TRY(write_batch(set, batch, factors));
  exec::StepValues& steps = *prepared_.steps;
  fill(steps);
  // A sum by micro-batch needs the gradient of this micro-batch alone.
  steps.head().accumulate = !sums_each() && state_.micro_step > 0 ? 1 : 0;
  steps.set("counter", static_cast<uint32_t>(state_.counter + place_.rank));
  exec::Submission submission(model_->table);
  submission.add(set.accumulate);
  BOWLINE_TRY(exec::write_steps(*prepared_.device, prepared_.workspace, steps));
  submitted = true;
  const Status sent = submission.submit(*prepared_.device, &cancel_.flag());
  BOWLINE_TRY(sent.code() == Code::cancelled ? Status() : Status(sent));
  BOWLINE_TRY(prepared_.device->wait());
  if (!sent.ok()) {
    // A sum by micro-batch has nothing of the gradients that the kernels began to write.
    submitted = !sums_each() || !states_.empty();
    gradients_known_ = false;
    return cancel_.answer("The step");
  }
  counters_.refreshes += submission.refreshed().copies;
  const plan::Plan& plan = set.accumulate.plan();
  exec::bump_versions(model_->table, plan);
  BOWLINE_TRY(exec::read_steps(*prepared_.device, prepared_.workspace, steps));
  BOWLINE_TRY(exec::check_error(steps.head(), plan));
  BOWLINE_TRY_ASSIGN(const float loss, prepared_.read_output(plan, 0));
  out.loss = static_cast<double>(loss);
  BOWLINE_TRY_ASSIGN(out.weight, prepared_.read_weight(set));
  return out;
}

Status TrainerState::sum_round(uint32_t count) {
  if (sums_each()) {
    return sums_.add(model_->table, count, state_.micro_step == 0);
  }
  const bool last = state_.micro_step + count == options_.accumulation;
  return last ? sums_.add(model_->table, std::min(place_.size, options_.accumulation), true)
              : Status();
}

Status TrainerState::prepare_update() {
  BOWLINE_TRY(sums_.share_sums(model_->table));
  exec::StepValues& steps = *prepared_.steps;
  fill(steps);
  steps.set("gradient_scale", gradient_scale(0));
  BOWLINE_TRY(exec::write_steps(*prepared_.device, prepared_.workspace, steps));
  const Table& table = model_->table;
  for (uint32_t tie = 0; hook_ != nullptr && tie < table.storages.size(); ++tie) {
    const auto row = table.owned(tie, Role::gradient, 0);
    if (row && !table.storages[*row].empty) {
      BOWLINE_TRY(call_hook(tie, *row));
    }
  }
  return {};
}

Result<std::optional<StepReport>> TrainerState::update_together(std::span<const Tensor> batch) {
  if (next_hook_) {
    hook_ = std::move(*next_hook_);
    next_hook_.reset();
  }
  ProcessGroup* const group = options_.processes.get();
  BOWLINE_TRY(agree_on_sums(prepare_update()));
  const exec::Segment& update = prepared_.sets[set_].update;
  exec::Submission submission(model_->table);
  submission.add(update);
  const auto submit = [&]() -> Status {
    BOWLINE_TRY(submission.submit(*prepared_.device));
    BOWLINE_TRY(prepared_.device->wait());
    return exec::read_steps(*prepared_.device, prepared_.workspace, *prepared_.steps);
  };
  fault_ = TrainState::damaged;  // until all processes have the new weights
  BOWLINE_TRY(agree(group, submit()));
  ++counters_.submits;
  std::vector<uint32_t> bad(place_.size);
  bad[place_.rank] = prepared_.steps->get<uint32_t>("weights_non_finite");
  BOWLINE_TRY(share_all(group, std::span(bad)));
  prepared_.steps->set("weights_non_finite",
                       std::ranges::any_of(bad, [](uint32_t b) { return b != 0; }) ? 1u : 0u);
  const bool skipped = prepared_.steps->get<uint32_t>("non_finite") != 0;
  const bool overflow = overflows();
  if (!skipped) {
    exec::bump_versions(model_->table, update.plan());
    update.wrote_copies(model_->table);
    masters_.updated(model_->table);
    if (place_.size > 1) {
      const Status shared = agree(group, sums_.share_weights(model_->table));
      if (!shared.ok()) {
        end_link(false);
      }
      BOWLINE_TRY(Status(shared));
    }
  }
  fault_ = TrainState::ready;
  if (skipped) {
    BOWLINE_TRY(put_back_states());
    if (!overflow && nonfinite_.stops()) {
      return non_finite_error(batch, state_.losses.back(),
                              prepared_.steps->get<float>("grad_norm"));
    }
  }
  return conclude_step(overflow);
}

Status TrainerState::gather_sums() {
  const Status added =
      sums_each() ? Status()
                  : sums_.add(model_->table, std::min(place_.size, options_.accumulation), true);
  Status done = first_error(added, sums_.share_sums(model_->table));
  if (done.ok() && !sums_each()) {
    done = take_sums();
  }
  done = agree(options_.processes.get(), done);
  if (!done.ok()) {
    // Without sums of their own, the gradient rows have been overwritten.
    fault_ = sums_each() ? fault_ : TrainState::gradients_lost;
    end_link(sums_each());
  }
  return done;
}

Status TrainerState::take_sums() {
  if (sums_each()) {
    return sums_.load(model_->table);
  }
  // The kernels of process 0 add to the sum, those of the others start with zeros.
  for (const uint32_t tie : trained(model_->table)) {
    const auto row = model_->table.owned(tie, Role::gradient, 0);
    if (place_.rank != 0) {
      BOWLINE_TRY(model_->table.storages[*row].home.block->fill(std::byte{0}));
    }
  }
  return {};
}

Result<Table> TrainerState::gather_rows() {
  Table whole = model_->table;
  if (place_.size == 1) {
    return whole;
  }
  const std::vector<uint32_t> owner = owners(whole, place_.size);
  std::vector<std::vector<std::byte>> buffers(place_.size);
  // Calls `each` with the rows of all storages that process `rank` owns.
  const auto walk = [&](uint32_t rank, const auto& each) -> Status {
    for (const uint32_t tie : trained(whole)) {
      if (owner[tie] != rank) {
        continue;
      }
      uint32_t slot = 0;
      for (const Moment& moment : moments(options_.optimizer, whole.storages[tie].shape)) {
        BOWLINE_TRY(each(tie, Role::moment, slot++, moment.shape));
      }
      if (has_master(whole.storages[tie])) {
        BOWLINE_TRY(each(tie, Role::master, 0, whole.storages[tie].shape));
      }
    }
    return {};
  };
  for (uint32_t r = 0; r < place_.size; ++r) {
    uint64_t bytes = 0;
    BOWLINE_TRY(walk(r, [&](uint32_t, Role, uint32_t, const Shape& shape) -> Status {
      bytes += static_cast<uint64_t>(shape.elements()) * sizeof(float);
      return {};
    }));
    if (r == place_.rank || place_.rank == 0) {
      buffers[r].resize(bytes);
    }
  }
  uint64_t at = 0;
  const Status read =
      walk(place_.rank, [&](uint32_t tie, Role role, uint32_t slot, const Shape& shape) -> Status {
        const uint64_t bytes = static_cast<uint64_t>(shape.elements()) * sizeof(float);
        const std::span to = std::span(buffers[place_.rank]).subspan(at, bytes);
        at += bytes;
        return whole.storages[*whole.owned(tie, role, slot)].home.block->read(0, to);
      });
  BOWLINE_TRY(agree(options_.processes.get(), read));
  std::vector<std::span<const std::byte>> to(place_.size);
  std::vector<std::span<std::byte>> from(place_.size);
  for (uint32_t r = 1; r < place_.size && place_.rank == 0; ++r) {
    from[r] = buffers[r];
  }
  if (place_.rank != 0) {
    to[0] = buffers[place_.rank];
  }
  BOWLINE_TRY(options_.processes->exchange(to, from));
  for (uint32_t r = 1; r < place_.size && place_.rank == 0; ++r) {
    at = 0;
    BOWLINE_TRY(walk(r, [&](uint32_t tie, Role role, uint32_t slot, const Shape& shape) -> Status {
      const uint64_t bytes = static_cast<uint64_t>(shape.elements()) * sizeof(float);
      add_row(whole, tie, role, slot, shape);
      const uint32_t number = *whole.owned(tie, role, slot);
      Storage row = whole.storages[number];
      BOWLINE_TRY_ASSIGN(params::Home home,
                         params::make_home(nullptr, std::span(buffers[r]).subspan(at, bytes)));
      params::install(row, std::move(home));
      whole.put(number, std::move(row));
      at += bytes;
      return {};
    }));
  }
  return whole;
}

}  // namespace bowline::detail::train
