// The state of a Trainer. trainer.cpp creates it, step.cpp runs a training step, and checkpoint.cpp
// saves and resumes.
#pragma once

#include "exec/session.h"
#include "train/masters.h"
#include "train/nonfinite.h"
#include "train/prepared.h"
#include "train/states.h"
#include "train/together.h"

namespace bowline::detail::train {

// Sets a flag to true during its lifetime.
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
  // Registers the trainer with the model. Call start() before any other function.
  TrainerState(std::shared_ptr<graph::ModelState> model, TrainOptions options);
  ~TrainerState();
  TrainerState(const TrainerState&) = delete;
  TrainerState& operator=(const TrainerState&) = delete;

  // Checks the options, and makes rows and plans. A failure leaves the model as it was. `device` is
  // null if the Device of the caller was moved from.
  Status start(const device::OpenDevice* device);
  Result<std::optional<StepReport>> micro_step(std::span<const Tensor> batch,
                                               std::span<const Tensor> overrides = {});
  void set_gradient_hook(GradientHook hook);
  // Errors  bad_argument: the gradient hook is running.
  Status require_no_hook() const;
  Result<std::vector<NodeTime>> profile(std::span<const Tensor> batch);
  bool needs_loss_weights() const {
    return !prepared_.sets.empty() && !prepared_.sets[0].means.empty();
  }
  Status add_loss_weights(std::span<const Tensor> batch);
  // Calls add_loss_weights() for all micro-batches of a step, if needed.
  Status weigh_all(std::span<const std::span<const Tensor>> batches);
  Result<float> evaluate(std::span<const Tensor> batch);
  Result<float> evaluate(std::span<const Tensor> batch, std::span<const Tensor> outputs);
  Status gradient(std::string_view name, const Tensor& out) const;
  Status set_learning_rate(std::optional<float> rate);
  Status snapshot();
  Status rollback();
  void cancel() { cancel_.ask(); }
  Status pause(const std::string& path, const Progress& data,
               FileSystem& files = real_file_system());
  Status save(const std::string& path, const Progress& data,
              FileSystem& files = real_file_system());
  Result<Progress> resume(const std::string& path, const ResumeOptions& options,
                          FileSystem& files = real_file_system());
  Result<Progress> resume_here(const std::string& path, const ResumeOptions& options,
                               FileSystem& files);

  void leave_device() override;
  bool accumulates() const override { return state_.micro_step > 0 || unread_.has_value(); }
  bool is_damaged() const override { return fault_ == TrainState::damaged; }
  TrainState state() const;
  Status restart_step();
  uint64_t steps() const { return state_.step; }
  uint32_t accumulated() const { return state_.micro_step; }
  const TrainOptions& options() const { return options_; }
  const Place& place() const { return place_; }
  MemoryReport memory() const;
  Counters counters() const { return counters_; }
  Result<PlanInfo> describe() const;
  Result<std::string> listing(std::string_view part, bool columns) const;

 private:
  // What a checkpoint restores besides the storages.
  struct Position {
    uint64_t step = 0;                // finished steps, including skipped ones
    uint64_t applied = 0;             // updates: the t of AdamW
    uint64_t counter = 0;             // micro-batches since the run started: the counter of Dropout
    uint32_t micro_step = 0;          // finished micro-batches of the unfinished step
    std::vector<float> losses;        // one per micro-batch of the unfinished step
    std::vector<double> weights;      // the loss weights of these micro-batches
    std::optional<float> rate;        // replaces the rate of the schedule
    std::optional<float> loss_scale;  // not set before the first plan
    uint64_t good_steps = 0;          // finite steps since the loss scale changed
  };

  // A micro-batch that was submitted, but whose result was not read.
  struct Unread {
    bool last = false;   // the update was submitted too
    uint64_t batch = 0;  // hash_of() the batch
  };

  // The result of add_loss_weights() for a micro-batch of the current or the next step.
  struct Weighed {
    uint64_t batch = 0;           // hash_of() the batch
    std::vector<double> weights;  // one per mean of the loss
  };

  struct Snapshot {
    Position position;
    std::vector<float> sums;                    // GradientSums::sums()
    params::Table layout;                       // the table without values
    std::vector<std::vector<std::byte>> bytes;  // by tie index
  };

  // The results of the micro-batch of one process in a round.
  struct Micro {
    uint64_t step = 0;
    uint64_t micro_step = 0;
    double loss = 0;
    double weight = 0;
    uint64_t settled = 0;  // GradientSums::settled()
  };

  // start() without the comparison with the other processes.
  Status start_here(const device::OpenDevice* device);
  // Checks that all processes have the same run.
  Status compare_processes() const;
  // True if gradients are summed by `sums_`, and not only by kernels.
  bool sums_apart() const {
    return place_.size > 1 ||
           (options_.gradient_sum == GradientSum::by_micro_batch && options_.accumulation > 1);
  }
  bool sums_each() const { return options_.gradient_sum == GradientSum::by_micro_batch; }
  // micro_step() if sums_apart(): one round of all processes.
  Result<std::optional<StepReport>> round(std::span<const Tensor> batch);
  // Trains with the micro-batch of this process in a round of `count` micro-batches. `submitted`:
  // the gradient rows changed.
  Result<Micro> train_here(std::span<const Tensor> batch, uint32_t count, bool& submitted);
  Status sum_round(uint32_t count);
  // Updates the weights after the last round, in all processes.
  Result<std::optional<StepReport>> update_together(std::span<const Tensor> batch);
  // Writes the sums and the per-step scalars, and calls the gradient hook.
  Status prepare_update();
  // Returns an error of any process in all. Discards the unfinished step if there is one.
  Status agree_or_restart(const Status& mine);
  // The same after an exchange of sums: it ends a link, too.
  Status agree_on_sums(const Status& mine);
  void end_link(bool keep);
  // Sends moments and masters to process 0. Returns a table that has those of all processes there.
  Result<params::Table> gather_rows();
  // Returns true if this process keeps the moments and the master of a storage.
  bool owns(uint32_t tie) const;
  // Starts the sums of the unfinished step with the gradient rows of a checkpoint.
  Status take_sums();
  // Writes the sums of the unfinished step to the gradient rows.
  Status gather_sums();

  // Makes the plans again if the table changed since, then updates the masters.
  Status prepare();
  // Adds the rows of training to `staged`, makes the plans for it, and commits both.
  // Errors  bad_argument: the model is not on `wanted`.
  Status plan(params::Table staged, std::optional<const device::OpenDevice*> wanted = {});
  // Returns true if the gradients of the step overflow and a smaller loss scale may help.
  bool overflows() const;
  void adapt_loss_scale(bool overflow);
  // Returns the device of the trained storages.
  const std::shared_ptr<device::OpenDevice>& home() const;

  // Returns the factor of each mean of the loss for this micro-batch. Empty if needs_loss_weights()
  // is false.
  // Errors  bad_argument: add_loss_weights() did not get all micro-batches of the step, or got
  //         another batch at this position.
  Result<std::vector<float>> mean_factors(std::span<const Tensor> batch) const;
  // `whole_weights_suffice`: `call` does not need the gradients of the unfinished step.
  // Errors  bad_argument: an earlier failure does not allow `call`.
  Status require_state(std::string_view call, bool whole_weights_suffice = false) const;
  // Sets fault_ after a failed submission. `last`: the submission contained the update.
  void look_after_failed_submit(bool last);
  // The same after a submission that was cancelled before the update began. Returns the error.
  Status look_after_cancel();
  // Submits the update after the accumulate segment, in a submission of its own. This is needed if
  // there is a hook, or if the loss weight is known only after the last micro-batch.
  Status update_alone();
  Status write_batch(const Prepared::Set& set, std::span<const Tensor> batch,
                     std::span<float> factors);
  // Calls the hook for storage `tie`, whose gradient is in `row`, and writes changed values back.
  Status call_hook(uint32_t tie, uint32_t row);
  // Waits for the unread micro-batch, reads its result and commits it. If the result cannot be
  // read, nothing changes, and the call can be made again.
  Result<std::optional<StepReport>> read_back(std::span<const Tensor> batch);
  // Discards the micro-batches of the unfinished step. The next micro-batch overwrites their
  // gradients. Restores the running statistics as put_back_states() does.
  Status forget_accumulation();
  // Restores the running statistics. If they cannot be written, the fault is `damaged`.
  Status put_back_states();
  // Makes the report of a finished step and starts the next step.
  StepReport finish_step();
  // Counts a step whose update has run, adapts the loss scale, and applies the policy for
  // non-finite values.
  Result<std::optional<StepReport>> conclude_step(bool overflow);
  // The error of a step that cannot be applied under OnNonFinite::stop. Discards the step.
  Status non_finite_error(std::span<const Tensor> batch, float loss, float norm);
  // Restores the snapshot.
  Status restore();
  // Takes moments and position from the checkpoint that the model was opened with.
  Status adopt(params::Table& staged, Position& position) const;
  // `same_run`: the options must be those of the checkpoint. `extend`: total_steps may differ.
  // Errors  bad_argument: the training state is invalid, or it belongs to another run.
  Status check_record(const model::TrainingState& t, bool same_run, bool extend) const;
  Position position_of(const model::TrainingState& t) const;
  // Writes the values of a checkpoint in place. `pending`: including the gradients.
  Status write_rows(const params::Table& saved, bool pending);

  // Sets the per-step scalars of the next micro-batch.
  void fill(exec::StepValues& values) const;
  // Returns the factor that makes the sum in the gradient rows the mean of the step. `more` is
  // added to the loss weights of the finished micro-batches.
  float gradient_scale(double more) const;

  std::shared_ptr<graph::ModelState> model_;
  TrainOptions options_;
  Position state_;
  std::optional<Unread> unread_;
  std::vector<Weighed> weighed_;          // in the order of the micro-batches
  TrainState fault_ = TrainState::ready;  // set by a failed submission, rollback or resume
  bool gradients_known_ = false;          // the gradient rows hold the last micro-batches ...
  float gradient_loss_scale_ = 1;         // ... multiplied by this loss scale
  NonFinitePolicy nonfinite_;
  exec::CancelRequest cancel_;

  Prepared prepared_;
  Masters masters_;
  RunningStates states_;  // those that prepared_ writes
  size_t set_ = 0;        // the set of dimensions of the last micro-batch
  // The accumulate segment with overrides of the last micro-batch, until its result is read.
  std::optional<exec::Segment> overridden_;
  GradientHook hook_;
  bool hook_runs_ = false;
  std::optional<GradientHook> next_hook_;        // set while the hook ran
  std::unique_ptr<exec::SessionState> outputs_;  // for evaluate() with outputs; made on first use
  Counters counters_;
  std::optional<Snapshot> snapshot_;
  const Place place_;
  GradientSums sums_;  // set if sums_apart()
};

}  // namespace bowline::detail::train
