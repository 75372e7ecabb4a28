/// \file
/// Trainer: fine-tunes or trains a model.
///
/// A training step consists of one or more micro-batches. For each micro-batch, the Trainer
/// computes the loss and its gradients. After the last one, the optimizer updates the weights.
///
/// An example with one micro-batch per step:
///
///     TrainOptions options;
///     options.schedule.learning_rate = 1e-3f;
///     BOWLINE_TRY_ASSIGN(Trainer trainer, Trainer::create(model, device, options));
///     while (trainer.steps() < 100) {
///       BOWLINE_TRY_ASSIGN(const auto report, trainer.micro_step(next_batch()));
///       print(report->loss);
///     }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bowline/budget.h"
#include "bowline/describe.h"
#include "bowline/device.h"
#include "bowline/model.h"
#include "bowline/optimizer.h"
#include "bowline/session.h"
#include "bowline/status.h"
#include "bowline/tensor.h"

namespace bowline::detail::train {
class TrainerState;
}

#pragma GCC visibility push(default)

namespace bowline {

/// What happens if the loss or the gradient norm of a step is not finite. The weights of such a
/// step are never updated.
enum class OnNonFinite : uint8_t {
  skip,      ///< The step is skipped, and training continues.
  stop,      ///< micro_step() returns non_finite. The message names the first bad node.
  rollback,  ///< The last snapshot() is restored, and training continues from there.
};

/// Where a Trainer starts.
enum class TrainStart : uint8_t {
  fresh,  ///< At step 0 with new moments. Training state in the model is removed.
  /// At the step and with the moments that the model contains, because it was opened from a
  /// checkpoint. If a step was unfinished, it starts again with its first micro-batch.
  from_checkpoint,
};

/// Options for some of the parameters.
struct ParameterGroup {
  std::string pattern;                     ///< Pattern of parameter names; see model.h.
  float learning_rate_factor = 1;          ///< Multiplies the learning rate.
  std::optional<float> weight_decay = {};  ///< Replaces Optimizer::weight_decay, for any rank.
};

/// The precision of training.
///
/// Gradients are f32. A 16-bit weight is trained in f32: the Trainer keeps an f32 master of it and
/// rounds the master to the weight after each step.
struct TrainPrecision {
  std::optional<DType> compute_dtype = {};  ///< As BoundEntryPoint::compute_dtype.
  /// The loss is multiplied by this value while gradients are computed.
  ///
  /// 0: 1 if no gradient is f16; otherwise dynamic. A dynamic scale starts at `initial_scale`. A
  /// step with a non-finite gradient is skipped and halves the scale. `growth_interval` finite
  /// steps in a row double the scale.
  float loss_scale = 0;
  float initial_scale = 32768;
  uint32_t growth_interval = 2000;
};

/// Options of a Trainer.
struct TrainOptions {
  std::string entry_point = "loss";  ///< The entry point to train.
  std::string loss = "loss";         ///< The output to minimize. It must be a scalar.
  std::vector<BoundDim> dims;        ///< Sizes of the named dimensions of the inputs.
  /// (optional) Further sets of sizes, for example for shorter sequences. A micro-batch uses the
  /// plan with its shapes. The plans share gradients, moments and memory for activations.
  std::vector<std::vector<BoundDim>> more_dims;
  Optimizer optimizer;
  Schedule schedule;
  float clip_norm = 0;  ///< Largest L2 norm of all gradients together. 0: no clipping.
  /// Number of micro-batches per step (gradient accumulation).
  ///
  /// The gradient of a step does not depend on how its samples are split into micro-batches, except
  /// for rounding. Each mean in the loss is taken over the whole step: the sum of its terms is
  /// divided by the sum of its *loss weights*. The loss weight of a micro-batch is, for example,
  /// its number of labels. A micro-batch without labels adds nothing. If the loss contains no mean,
  /// all micro-batches have the same loss weight.
  ///
  /// Terms that mix the samples of a batch, such as BatchNorm statistics, are computed separately
  /// for each micro-batch.
  uint32_t accumulation = 1;
  uint64_t seed = 0;                  ///< Seed of dropout.
  Budget budget = Budget::of_plan();  ///< Limits for each plan.
  /// The first group that matches a parameter applies. Trainer::create() fails if two parameters of
  /// one storage are in different groups, or if a pattern matches no trainable parameter.
  std::vector<ParameterGroup> groups;
  TrainStart start = TrainStart::fresh;
  OnNonFinite on_nonfinite = OnNonFinite::skip;
  /// After this many non-finite steps in a row, micro_step() returns non_finite. 0: never.
  uint32_t max_nonfinite_in_row = 5;
  TrainPrecision precision;
};

/// The result of a training step.
struct StepReport {
  uint64_t step = 0;         ///< Number of the step. The first step is 1.
  float loss = 0;            ///< Loss of the whole step.
  float grad_norm = 0;       ///< L2 norm of all gradients together, before clipping.
  float learning_rate = 0;   ///< Learning rate of the step.
  float loss_scale = 1;      ///< Loss scale of the step; see TrainPrecision.
  bool skipped = false;      ///< The loss or grad_norm was not finite. The weights did not change.
  bool rolled_back = false;  ///< The last snapshot was restored; see OnNonFinite::rollback.
  bool weights_non_finite = false;  ///< The update made a weight infinite or NaN.
  uint32_t nonfinite_in_row = 0;    ///< Non-finite steps in a row, up to this step.
  uint64_t nonfinite_steps = 0;     ///< Non-finite steps of this Trainer.
};

/// What the caller can do after a call failed.
enum class TrainState : uint8_t {
  /// No damage. Make the call again, or continue in another way.
  ready,
  /// A micro-batch was submitted, but its result could not be read. Call micro_step() again with
  /// the same batch: it reads the result and submits nothing. Or call rollback() or resume().
  unread,
  /// The gradients of the unfinished step are lost. The weights are intact. Call restart_step() and
  /// repeat the micro-batches of the step. Or call rollback() or resume().
  gradients_lost,
  /// Weights or moments may be damaged. Call rollback() or resume(). If the call fails, call it
  /// again.
  damaged,
};

/// The position of a training run, which a checkpoint contains. The caller chooses the meaning of
/// `epoch`, `data_cursor`, `data_seed` and `config`.
struct Progress {
  uint64_t step = 0;        ///< Finished steps. Set by resume(); save() ignores it.
  uint64_t micro_step = 0;  ///< Micro-batches of the unfinished step. Set by resume() only.
  uint64_t epoch = 0;
  uint64_t data_cursor = 0;
  uint64_t data_seed = 0;
  std::vector<std::pair<std::string, std::string>> config;
  /// Set by resume(): differences that are allowed, for example another device. Sentences.
  std::vector<std::string> notes;
};

/// Options of Trainer::resume().
struct ResumeOptions {
  /// Allows another Schedule::total_steps than in the checkpoint, to extend a finished run.
  bool extend = false;
};

/// A storage whose gradient a GradientHook gets.
struct GradientInfo {
  uint32_t tie = 0;                     ///< Tie index of the storage.
  std::vector<std::string> parameters;  ///< All parameters that use it.
  TensorShape shape;                    ///< Shape of the storage.
  uint64_t step = 0;                    ///< Number of the step. The first step is 1.
};

/// Reads or changes the gradient of a storage before the update.
///
/// The Trainer calls the hook once per step for each trained storage. `gradient` is the gradient of
/// the step before clipping. The hook may write to it. An error ends the step; see
/// Trainer::state(). The hook must not call functions of the Trainer or its model, except
/// set_gradient_hook().
using GradientHook = std::function<Status(const GradientInfo& of, std::span<float> gradient)>;

/// Trains the trainable storages of a Model on one device.
///
/// A Model has at most one Trainer at a time. The Trainer owns the gradients, moments and masters
/// and removes them when it is destroyed. Only save() keeps them. A Trainer can be moved.
///
/// The entry point may write BatchNorm running statistics; other state is not supported. They are
/// updated once per micro-batch. If a step fails, is skipped or is restarted, they are restored to
/// their values from before the step.
class Trainer {
 public:
  /// \name Creating
  /// \{

  /// Creates a trainer. It adds gradients, moments and masters to the model.
  ///
  /// If the memory is too short, the plan recomputes activations (PlanInfo::recomputed_nodes).
  ///
  /// Errors:
  /// - bad_argument: another Trainer of the model exists, or an option is out of range.
  /// - bad_argument: the loss is not a scalar.
  /// - bad_argument: the loss does not depend on a trainable storage. Freeze it.
  /// - bad_argument: an operator between a trainable storage and the loss has no gradient.
  /// - bad_argument: the model has no training state for TrainStart::from_checkpoint.
  /// - bad_argument: two sets of dimensions have inputs of the same shapes.
  /// - unsupported: the device cannot run a node, or the entry point writes other state.
  /// - out_of_memory, over_budget: storages and plans do not fit, even with recomputation.
  static Result<Trainer> create(Model& model, const Device& device, const TrainOptions& options);

  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  /// \}
  /// \name Training
  /// \{

  /// Trains with one step: `batches` contains one batch for each micro-batch.
  ///
  /// If the step has finished micro-batches already, step() starts after them. So a call that
  /// failed can be made again. step() calls add_loss_weights() if needed.
  ///
  /// Errors: as micro_step().
  Result<StepReport> step(std::span<const std::span<const Tensor>> batches);

  /// Trains with one micro-batch. The last micro-batch of a step also updates the weights.
  ///
  /// - `batch`: all inputs by name. Their shapes must match TrainOptions::dims or one of more_dims.
  /// - `overrides`: values that replace parameters, as in Session::run(). The gradient is computed
  ///   with these values. The update changes the weights.
  ///
  /// Returns a report if the step is finished, else nothing. If a call failed and is made again,
  /// the result has the same bits as without the failure; see state().
  ///
  /// Errors:
  /// - bad_argument: the batch fits no set of dimensions.
  /// - bad_argument: needs_loss_weights() is true, and add_loss_weights() was not called with all
  ///   micro-batches of the step, or `overrides` are given.
  /// - index_out_of_range: an index or label is out of range. The unfinished step is discarded.
  /// - non_finite: see TrainOptions::on_nonfinite and max_nonfinite_in_row.
  /// - cancelled: cancel() was called.
  /// - device_lost: open the device again and resume from a checkpoint.
  Result<std::optional<StepReport>> micro_step(std::span<const Tensor> batch,
                                               std::span<const Tensor> overrides = {});

  /// Returns true if micro_step() must know the loss weights of the whole step in advance.
  ///
  /// This is the case if a step has several micro-batches and the loss adds several means with
  /// different loss weights (see TrainOptions::accumulation). Then call add_loss_weights() for each
  /// micro-batch before the first micro_step(), or call step().
  bool needs_loss_weights() const;

  /// Adds the loss weights of one micro-batch to the loss weights of the next step.
  ///
  /// It runs only the nodes that compute the loss weights, for example those that count labels. If
  /// needs_loss_weights() is false, it does nothing. After resume() in the middle of a step, call
  /// it again for all micro-batches of that step, including the finished ones.
  ///
  /// Errors: bad_argument: the batch fits no set of dimensions.
  Status add_loss_weights(std::span<const Tensor> batch);

  /// Asks the running step to stop. Threads: any thread.
  ///
  /// The step returns `cancelled` before its next submission; the weights do not change. If no step
  /// runs, the next step returns `cancelled` at once.
  void cancel();

  /// Sets the learning rate of the next steps. No value: the learning rate of the schedule again.
  ///
  /// A checkpoint contains this learning rate.
  Status set_learning_rate(std::optional<float> rate);

  /// Sets a hook for gradients. An empty hook removes it.
  ///
  /// With a hook, a step needs two submissions. A hook may call this function; the new hook is used
  /// from the next step on.
  void set_gradient_hook(GradientHook hook);

  /// \}
  /// \name Evaluating
  /// \{

  /// Returns the loss of a batch. The model does not change, and dropout is off.
  Result<float> evaluate(std::span<const Tensor> batch);
  /// Returns the loss of a batch and writes outputs of the entry point, by name.
  Result<float> evaluate(std::span<const Tensor> batch, std::span<const Tensor> outputs);

  /// Copies the gradient of a trained parameter, through its view, into `out`: f32, of its shape.
  ///
  /// It is the sum over the micro-batches of the unfinished step, or of the last step if there is
  /// no unfinished one. It is not yet clipped or averaged.
  ///
  /// Errors: bad_argument: the parameter is not trained; no micro-batch was run yet.
  Status gradient(std::string_view name, const Tensor& out) const;

  /// Does the same as micro_step() and measures the time of each node.
  ///
  /// Errors: as micro_step() and Session::profile().
  Result<std::vector<NodeTime>> profile(std::span<const Tensor> batch);

  /// \}
  /// \name Snapshots and checkpoints
  /// \{

  /// Copies weights, training state and ties to host memory.
  Status snapshot();

  /// Restores the last snapshot.
  ///
  /// It undoes later changes of the model by tie, untie, freeze, load and set_value. Storages that
  /// were added since stay as empty rows of the table.
  ///
  /// Errors: bad_argument: there is no snapshot; parameters were declared since.
  Status rollback();

  /// Writes a checkpoint atomically: the model, moments, gradients of an unfinished step, position.
  Status save(const std::string& path, const Progress& data) const;

  /// Continues from a checkpoint. All later steps have the same bits as without the interruption.
  ///
  /// The whole file is verified before the first change.
  ///
  /// Errors: as Model::open().
  /// - bad_file: the checkpoint belongs to another model or other options. The message says which.
  /// - bad_file: the training state in the file is invalid.
  Result<Progress> resume(const std::string& path, const ResumeOptions& options = {});

  /// \}
  /// \name State
  /// \{

  /// Returns what the caller can do after a failure.
  TrainState state() const;
  /// Discards the micro-batches of the unfinished step. The next micro-batch is then its first.
  Status restart_step();
  /// Returns the number of finished steps, including skipped ones.
  uint64_t steps() const;
  /// Returns the number of micro-batches of the unfinished step.
  uint32_t accumulated() const;

  /// As Session::memory().
  MemoryReport memory() const;
  Counters counters() const;
  /// As Session::describe().
  Result<PlanInfo> describe() const;
  /// As Session::listing(). `part` is "build", "forward", "backward" or "update".
  Result<std::string> listing(std::string_view part, bool columns = false) const;

  /// \}

 private:
  explicit Trainer(std::unique_ptr<detail::train::TrainerState> state);
  std::unique_ptr<detail::train::TrainerState> state_;
};

}  // namespace bowline

#pragma GCC visibility pop
