// What a Trainer holds. Its life is in trainer.cpp, one training step in step.cpp, checkpoints in
// checkpoint.cpp.
#pragma once

#include <atomic>

#include "exec/session.h"
#include "train/masters.h"
#include "train/nonfinite.h"
#include "train/prepared.h"
#include "train/states.h"

namespace bowline::detail::train {

// True while it lives.
class Inside {
 public:
  explicit Inside(bool& flag) : flag_(flag) { flag_ = true; }
  ~Inside() { flag_ = false; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  bool& flag_;
};

class TrainerState final : public graph::User {
 public:
  // Takes the training state of the model: start() before anything else.
  TrainerState(std::shared_ptr<graph::ModelState> model, TrainOptions options);
  ~TrainerState();
  TrainerState(const TrainerState&) = delete;
  TrainerState& operator=(const TrainerState&) = delete;

  // Checks the options, makes rows and plans. A failure leaves the model as it was. `device` null:
  // one that was moved from.
  Status start(const device::OpenDevice* device);
  Result<std::optional<StepReport>> micro_step(std::span<const Tensor> batch,
                                               std::span<const Tensor> overrides = {});
  void set_gradient_hook(GradientHook hook);
  // Errors  bad_argument: the hook runs.
  Status require_no_hook() const;
  Result<std::vector<NodeTime>> profile(std::span<const Tensor> batch);
  bool needs_loss_weights() const {
    return !prepared_.sets.empty() && !prepared_.sets[0].means.empty();
  }
  Status add_loss_weights(std::span<const Tensor> batch);
  // All micro-batches of a step.
  Status weigh_all(std::span<const std::span<const Tensor>> batches);
  Result<float> evaluate(std::span<const Tensor> batch);
  Result<float> evaluate(std::span<const Tensor> batch, std::span<const Tensor> outputs);
  Status gradient(std::string_view name, const Tensor& out) const;
  Status set_learning_rate(std::optional<float> rate);
  Status snapshot();
  Status rollback();
  void cancel() { cancelled_ = true; }
  Status save(const std::string& path, const Progress& data,
              FileSystem& files = real_file_system());
  Result<Progress> resume(const std::string& path, const ResumeOptions& options,
                          FileSystem& files = real_file_system());

  void leave_device() override;
  bool accumulates() const override { return state_.micro_step > 0 || unread_.has_value(); }
  TrainState state() const;
  Status restart_step();
  uint64_t steps() const { return state_.step; }
  uint32_t accumulated() const { return state_.micro_step; }
  const TrainOptions& options() const { return options_; }
  MemoryReport memory() const;
  Counters counters() const { return counters_; }
  Result<PlanInfo> describe() const;
  Result<std::string> listing(std::string_view part, bool columns) const;

 private:
  // Everything that a checkpoint restores besides the storages.
  struct Position {
    uint64_t step = 0;                // finished steps, skipped ones too
    uint64_t applied = 0;             // updates made: the t of AdamW
    uint64_t counter = 0;             // micro-batches since the run began: the counter of Dropout
    uint32_t micro_step = 0;          // inside the accumulation
    std::vector<float> losses;        // of the unfinished accumulation
    std::vector<double> weights;      // of these losses: the sums of the weights of their terms
    std::optional<float> rate;        // instead of the schedule's
    std::optional<float> loss_scale;  // none: not known before the first plan
    uint64_t good_steps = 0;          // since the scale changed
  };

  // A micro-batch that was submitted and not yet read back.
  struct Unread {
    bool last = false;   // the update was submitted with it
    uint64_t batch = 0;  // hash_of() its tensors
  };

  // What add_loss_weights() found in a micro-batch of the next step, or of this one.
  struct Weighed {
    uint64_t batch = 0;           // hash_of() its tensors
    std::vector<double> weights;  // by mean of the loss
  };

  struct Snapshot {
    Position position;
    params::Table layout;                       // without bytes
    std::vector<std::vector<std::byte>> bytes;  // by tie index
  };

  // Makes the plans if they are not those of the table: the model moved or changed.
  Status prepare();
  // Makes the plans for `staged`, with the rows that training adds, and commits both. Errors
  // bad_argument: the model does not lie
  // on `wanted`.
  Status plan(params::Table staged, std::optional<const device::OpenDevice*> wanted = {});
  // The gradients of the step overflow, and a smaller loss scale may help.
  bool overflows() const;
  void adapt_loss_scale(bool overflow);
  // Where the storages lie that are trained.
  const std::shared_ptr<device::OpenDevice>& home() const;

  // The factor of each mean of the loss in this micro-batch. Empty if needs_loss_weights() is
  // false. Errors  bad_argument: add_loss_weights() did not get all micro-batches of the step, or
  // got another batch
  //         at
  // this position.
  Result<std::vector<float>> mean_factors(std::span<const Tensor> batch) const;
  // Errors  bad_argument: an earlier failure does not allow `call`.
  Status require_state(std::string_view call, bool whole_weights_suffice = false) const;
  void look_after_failed_submit(bool last);
  // The update in a submission of its own, after the accumulate segment: the hook sees the
  // gradients, or the weight of the last micro-batch has to be known.
  Status update_alone();
  Status write_batch(const Prepared::Set& set, std::span<const Tensor> batch,
                     std::span<float> factors);
  Status call_hook(uint32_t tie, uint32_t row);
  // Waits for the unread micro-batch, reads it back and commits it. Unless a result was read, a
  // failure changes nothing: it can be called again.
  Result<std::optional<StepReport>> read_back(std::span<const Tensor> batch);
  // The step begins anew: what its micro-batches added is overwritten by the next one, and the
  // states are as it found them. Where these cannot be written the fault is `damaged`.
  Status forget_accumulation();
  // Where they cannot be written the fault is `damaged`.
  Status put_back_states();
  StepReport finish_step();
  // The error of a step that cannot be applied under OnNonFinite::stop. Discards the step.
  Status non_finite_error(std::span<const Tensor> batch, float loss, float norm);
  // Puts back what the snapshot has.
  Status restore();
  // Takes moments and position of the record that the model was opened with.
  Status adopt(params::Table& staged, Position& position) const;
  // Errors  bad_file: what it says is not legal, or not of this run.
  Status check_record(const model::TrainingState& t, bool same_run, bool extend) const;
  Position position_of(const model::TrainingState& t) const;
  Status write_rows(const params::Table& saved, bool pending);

  // What the next micro-batch is submitted with, by the names that operators declare.
  void fill(exec::StepValues& values) const;
  // What the gradient rows are multiplied with, if the weights of the losses and `more` are those
  // of the whole step.
  float gradient_scale(double more) const;

  std::shared_ptr<graph::ModelState> model_;
  TrainOptions options_;
  Position state_;
  std::optional<Unread> unread_;
  std::vector<Weighed> weighed_;          // in the order of the micro-batches
  TrainState fault_ = TrainState::ready;  // what a failed submission, rollback or resume left
  bool gradients_known_ = false;          // the rows hold those of the last micro-batches ...
  float gradient_loss_scale_ = 1;         // ... times this
  NonFinitePolicy nonfinite_;
  std::atomic<bool> cancelled_ = false;

  Prepared prepared_;
  Masters masters_;
  RunningStates states_;  // of the plans
  size_t set_ = 0;        // that of the last micro-batch
  // Its accumulate, with overrides, until it was read back.
  std::optional<exec::Segment> overridden_;
  GradientHook hook_;
  bool hook_runs_ = false;
  std::optional<GradientHook> next_hook_;  // that was set while it ran
  std::unique_ptr<exec::SessionState>
      outputs_;  // for evaluate() with outputs, from its first use on
  Counters counters_;
  std::optional<Snapshot> snapshot_;
};

}  // namespace bowline::detail::train
