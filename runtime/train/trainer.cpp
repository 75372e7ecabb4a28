// The life of a trainer, and what is asked of it between steps.
#include "train/trainer.h"

#include <cmath>

#include "params/verbs.h"
#include "train/options.h"

namespace bowline::detail::train {

TrainerState::TrainerState(std::shared_ptr<graph::ModelState> model, TrainOptions options)
    : model_(std::move(model)), options_(std::move(options)) {
  model_->users.add(*this);
}

TrainerState::~TrainerState() {
  if (model_->users.trainer() == this) {
    params::drop_training(model_->table);
  }
  model_->users.remove(*this);
}

Status TrainerState::start(const device::OpenDevice* device) {
  BOWLINE_REQUIRE(model_->users.trainer() == nullptr,
                  "The model is busy: another Trainer trains it, and a model has one at a time.");
  BOWLINE_TRY(check_options(options_));
  BOWLINE_TRY(check_groups(model_->table, options_));
  params::Table staged = model_->table;
  Position position;
  if (options_.start == TrainStart::from_checkpoint) {
    BOWLINE_TRY(adopt(staged, position));
  } else {
    params::drop_training(staged);
  }
  note_masters(staged, staged);
  // Reading a file gives version 1: what was written since means its own values.
  for (uint32_t tie = 0; tie < masters_.size(); ++tie) {
    if (staged.storages[tie].version > 1) {
      masters_[tie].reset();
    }
  }
  state_ = std::move(position);
  BOWLINE_TRY(plan(std::move(staged), device));
  model_->extras.training.reset();
  model_->users.set_trainer(*this);
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
  BOWLINE_TRY_ASSIGN(const uint32_t index, table.require(name));
  params::ParameterRow parameter = table.parameters[index];
  const auto row = table.owned(parameter.tie, params::Role::gradient, 0);
  BOWLINE_REQUIRE(row.has_value(), "Parameter \"{}\" is not trained: it has no gradient.", name);
  BOWLINE_REQUIRE(gradients_known_,
                  "There is no gradient of \"{}\" yet: no micro-batch was run since the start or "
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
                  "The learning rate is {}; it is a number from 0 on.", rate.value_or(0));
  state_.rate = rate;
  return {};
}

}  // namespace bowline::detail::train
