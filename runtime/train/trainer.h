// What a Trainer holds. Its life is in trainer.cpp, one training step in step.cpp, checkpoints in
// checkpoint.cpp.
#pragma once

#include <atomic>

#include "exec/session.h"
#include "graph/gradient.h"
#include "graph/loss_weight.h"

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
  bool needs_loss_weights() const { return !sets_.empty() && !sets_[0].means.empty(); }
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
              model::FileSystem& files = model::real_file_system());
  Result<Progress> resume(const std::string& path, const ResumeOptions& options,
                          model::FileSystem& files = model::real_file_system());

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

  // A storage that the accumulate segment writes besides gradients, as it was when the step began.
  struct State {
    uint32_t tie = 0;
    std::vector<std::byte> bytes;
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
  // The loss of one set of dims, up to which the forward part goes.
  struct BoundLoss {
    graph::BoundGraph graph;
    graph::ValueId loss = 0;
  };
  // What plan() makes before anything of it lies on the device.
  struct PlannedSet {
    graph::TrainingGraph training;
    plan::Plan accumulate;
    plan::Plan update;  // reads the loss where accumulate leaves it
    plan::Plan evaluate;
    // Set if the loss has a factor per mean: computes their divisors for one batch.
    std::optional<plan::Plan> weigh;
    std::vector<graph::LossMean> means;
  };
  struct Plans {
    std::vector<PlannedSet> sets;  // by set of dims
    graph::BoundGraph update_graph;
    double weight_unit = 1;
    std::optional<exec::StepValues> steps;
    exec::Workspace::Sizes sizes;
    bool dynamic_scale = false;

    std::vector<const plan::Plan*> all() const;
  };
  // The same on the device.
  struct Set {
    graph::TrainingGraph training;
    exec::Segment accumulate;
    exec::Segment update;
    exec::Segment evaluate;
    std::optional<exec::Segment> weigh;
    std::vector<graph::LossMean> means;
  };
  Result<std::vector<graph::FactoredLoss>> factored_losses(
      std::span<const BoundLoss> bound, const graph::GradientOptions& options) const;
  Result<Plans> make_plans(std::span<const BoundLoss> bound, const params::Table& staged,
                           const device::OpenDevice& device,
                           const graph::GradientOptions& options) const;
  // Errors  bad_argument: two sets of dims take inputs of the same shapes.
  Status check_distinct(const Plans& p) const;
  static Status require_room(const Plans& p, const params::Table& staged,
                             device::OpenDevice& device);
  template <class Make>
  static Result<size_t> how_many_again(std::span<const graph::ForwardNode> order,
                                       std::span<const size_t> tries, const params::Table& staged,
                                       device::OpenDevice& device, const Make& make, Status whole);
  // Lays them out on the device and commits them with the table.
  Status record(Plans p, params::Table& staged, const std::shared_ptr<device::OpenDevice>& device);
  // The forward part up to the loss. It computes in the dtype of the options, or else in `compute`.
  Result<BoundLoss> bound_loss(std::span<const BoundDim> dims, std::optional<DType> compute) const;
  // Of every set of dims.
  Result<std::vector<BoundLoss>> bound_losses(std::optional<DType> compute) const;
  // What the model computes and with which parameters; equal for equal runs.
  Result<uint64_t> graph_hash() const;
  void drop_plans();
  // The number of the set of dims that a batch is of. Errors  bad_argument: of none.
  Result<size_t> set_for(std::span<const Tensor> batch) const;
  uint64_t launches_of(const Set& set) const;
  // Masters of storages that were written by something else than an update; whoever keeps or reads
  // masters asks for it first.
  Status fill_masters();
  // The masters that `holder` has agree with their storages as `live` has them.
  void note_masters(const params::Table& holder, const params::Table& live);
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
  Status write_batch(const Set& set, std::span<const Tensor> batch, std::span<float> factors);
  Status call_hook(uint32_t tie, uint32_t row);
  // Waits for the unread micro-batch, reads it back and commits it. Unless a result was read, a
  // failure changes nothing: it can be called again.
  Result<std::optional<StepReport>> read_back(std::span<const Tensor> batch);
  // The step begins anew: what its micro-batches added is overwritten by the next one, and the
  // states are as it found them. Where these cannot be written the fault is `damaged`.
  Status forget_accumulation();
  // Errors  unsupported: one of these storages, which the graph writes, is no running statistic.
  Status check_states(const graph::GenericGraph& graph, std::span<const uint32_t> states) const;
  static std::vector<State> states_of(const plan::Plan& plan, const params::Table& table);
  // Before the first micro-batch of a step, and before the next one after what is kept was lost.
  Status keep_states();
  // Where they cannot be written the fault is `damaged`.
  Status put_back_states();
  StepReport finish_step();
  // Counts what is not finite and does what OnNonFinite says.
  Result<std::optional<StepReport>> conclude(StepReport report);
  // OnNonFinite::stop: the step begins anew; says what was not finite first.
  Status stop(std::span<const Tensor> batch, float loss, float norm);
  std::string find_non_finite(std::span<const Tensor> batch) const;
  Result<std::string> find_node(std::span<const Tensor> batch) const;
  // The first trainable parameter with a value, or a gradient, that is not finite; empty: none.
  Result<std::string> find_parameter(bool gradients) const;

  // Puts back what the snapshot has.
  Status restore();
  // Takes moments and position of the record that the model was opened with.
  Status adopt(params::Table& staged, Position& position) const;
  // Errors  bad_file: what it says is not legal, or not of this run.
  Status check_record(const model::TrainingState& t, bool same_run, bool extend) const;
  Position position_of(const model::TrainingState& t) const;
  Status write_rows(const params::Table& saved, bool pending);

  // Every trainable storage has a contribution to its gradient.
  Status check_gradients(const graph::BoundGraph& graph, const params::Table& table) const;
  // What the next micro-batch is submitted with, by the names that operators declare.
  void fill(exec::StepValues& values) const;
  // Output 0 of the accumulate and evaluate segments, the loss, or output 1 of accumulate, its
  // weight.
  Result<float> read_output(const plan::Plan& plan, size_t number) const;
  // The sum of the weights of the terms of the micro-batch that ran last.
  Result<double> read_weight(const Set& set) const;
  // What the gradient rows are multiplied with, if the weights of the losses and `more` are those
  // of the whole step.
  float gradient_scale(double more) const;
  Result<std::string> plan_text(bool columns) const;

  std::shared_ptr<graph::ModelState> model_;
  TrainOptions options_;
  Position state_;
  std::optional<Unread> unread_;
  std::vector<Weighed> weighed_;          // in the order of the micro-batches
  TrainState fault_ = TrainState::ready;  // what a failed submission, rollback or resume left
  bool gradients_known_ = false;          // the rows hold those of the last micro-batches ...
  float gradient_loss_scale_ = 1;         // ... times this
  bool dynamic_scale_ = false;
  double weight_unit_ = 1;  // GradientOptions::weight_unit of the plans
  std::vector<std::optional<uint64_t>>
      masters_;  // by tie: the version of the storage that its master holds
  uint32_t nonfinite_in_row_ = 0;
  uint64_t nonfinite_steps_ = 0;
  uint64_t rolled_back_from_ = 0;  // the step that OnNonFinite::rollback undid last
  std::atomic<bool> cancelled_ = false;

  std::shared_ptr<device::OpenDevice> device_;  // of the plans
  exec::Generations generations_;
  graph::BoundGraph update_graph_;
  exec::Workspace workspace_;
  std::vector<Set> sets_;  // by set of dims; empty: there are no plans
  size_t set_ = 0;         // that of the last micro-batch
  // Its accumulate, with overrides, until it was read back.
  std::optional<exec::Segment> overridden_;
  GradientHook hook_;
  bool hook_runs_ = false;
  std::optional<GradientHook> next_hook_;  // that was set while it ran
  std::optional<exec::StepValues> steps_;  // of the plans; after a submission, what came back
  std::unique_ptr<exec::SessionState>
      outputs_;  // for evaluate() with outputs, from its first use on
  Counters counters_;
  std::optional<Snapshot> snapshot_;
  std::vector<State> states_;  // of the plans
  bool states_kept_ = false;   // they are those of the begin of the unfinished step
};

}  // namespace bowline::detail::train
