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
#include "bowline/processes.h"
#include "bowline/session.h"
#include "bowline/status.h"
#include "bowline/tensor.h"

namespace bowline::detail::train {
class TrainerState;
}

#pragma GCC visibility push(default)

namespace bowline {

/// What happens if the loss or the gradient norm of a step is not finite. The step then never
/// updates the weights. `stop` and `rollback` also apply if an update makes a weight non-finite.
enum class OnNonFinite : uint8_t {
  skip,      ///< The step is skipped, and training continues.
  stop,      ///< micro_step() returns non_finite. The message locates the first infinity or NaN.
  rollback,  ///< The last snapshot() is restored. Without one, micro_step() returns non_finite.
};

/// Where a Trainer starts.
enum class TrainStart : uint8_t {
  fresh,  ///< At step 0 with new moments. Training state that Model::open() read is discarded.
  /// At the step and with the moments of the checkpoint that Model::open() opened. An unfinished
  /// step starts again. The optimizer must have the same name; other options may differ.
  from_checkpoint,
};

/// Options for some of the parameters.
struct ParameterGroup {
  std::string pattern;                     ///< Pattern of parameter names; see model.h.
  float learning_rate_factor = 1;          ///< Multiplies the learning rate.
  std::optional<float> weight_decay = {};  ///< Replaces the optimizer setting, also for vectors.
};

/// The precision of training.
///
/// Gradients of weights are f32. A 16-bit weight is trained in f32: the Trainer keeps an f32 copy
/// of it, the *master*. After each step, the rounded master is written to the weight.
struct TrainPrecision {
  std::optional<DType> compute_dtype = {};  ///< As BoundEntryPoint::compute_dtype.
  /// The loss is multiplied by this value while gradients are computed.
  ///
  /// 0: dynamic for plans with f16 values, 1 for other plans. With a dynamic scale, finite losses
  /// with a non-finite gradient skip the step and halve the scale; on_nonfinite does not apply.
  float loss_scale = 0;
  float initial_scale = 32768;      ///< The first dynamic scale.
  uint32_t growth_interval = 2000;  ///< Finite steps in a row that double a dynamic scale.
};

/// How the gradients of the micro-batches of a step are summed.
enum class GradientSum : uint8_t {
  /// Kernels add to the gradients of earlier micro-batches. This needs the least memory and time.
  in_place,
  /// The gradient of each micro-batch is computed alone and then added, in the order of the
  /// micro-batches. So a step has the same bits with every number of processes. The sum is in host
  /// memory. Each micro-batch copies the gradients from the device.
  by_micro_batch,
};

/// Options of a Trainer.
struct TrainOptions {
  std::string entry_point = "loss";  ///< The entry point to train.
  std::string loss = "loss";         ///< The output to minimize. It must be a scalar.
  std::vector<BoundDim> dims;        ///< Sizes of the named dimensions of the inputs.
  /// (optional) Further sets of sizes, for example for shorter sequences. Each set has its own
  /// plan. The shapes of a micro-batch select the plan. The plans share gradients, moments and
  /// memory for activations.
  std::vector<std::vector<BoundDim>> more_dims;
  Optimizer optimizer;
  Schedule schedule;
  float clip_norm = 0;  ///< Largest L2 norm of all gradients together. 0: no clipping.
  /// Number of micro-batches per step (gradient accumulation).
  ///
  /// The gradient of a step does not depend on how its samples are split into micro-batches, except
  /// for rounding. Each mean in the loss is taken over the whole step: micro-batches are weighted
  /// by their *loss weights*. The loss weight is the divisor of the mean, for example the number of
  /// labels. A micro-batch without labels adds nothing. If the loss contains no mean, all
  /// micro-batches have the same loss weight.
  ///
  /// Terms that mix the samples of a batch, such as BatchNorm statistics, are computed separately
  /// for each micro-batch.
  uint32_t accumulation = 1;
  GradientSum gradient_sum = GradientSum::in_place;  ///< Order of the sum over micro-batches.
  /// (optional) The processes that share the micro-batches of each step; see Trainer.
  std::shared_ptr<ProcessGroup> processes;
  uint64_t seed = 0;                  ///< Seed of dropout.
  Budget budget = Budget::of_plan();  ///< Limits for each plan; see Budget.
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
  float learning_rate = 0;   ///< Learning rate of the step, without the factors of groups.
  float loss_scale = 1;      ///< Loss scale of the step; see TrainPrecision.
  bool skipped = false;      ///< The loss or grad_norm was not finite. The weights did not change.
  bool rolled_back = false;  ///< The last snapshot was restored; see OnNonFinite::rollback.
  bool weights_non_finite = false;  ///< The update made a weight infinite or NaN; see OnNonFinite.
  uint32_t nonfinite_in_row = 0;    ///< Non-finite steps in a row, up to this step.
  uint64_t nonfinite_steps = 0;     ///< Non-finite steps of this Trainer.
};

/// What the caller can do after a call failed. Calls that a state rules out return bad_argument.
enum class TrainState : uint8_t {
  /// Nothing is lost. Every call is possible, also the same call again.
  ready,
  /// A micro-batch was submitted, but its result could not be read. Call micro_step() again with
  /// the same batch: it reads the result and submits nothing. Or call rollback() or resume().
  unread,
  /// The gradients of the unfinished step are lost. The weights are intact. Call restart_step() and
  /// repeat the micro-batches of the step. Or call rollback() or resume().
  gradients_lost,
  /// Weights or moments may be damaged. Call rollback() or resume() until one of them succeeds.
  damaged,
  /// pause() was called. Call Model::to(), then resume().
  paused,
};

/// The position of a training run in a checkpoint. The caller chooses the meaning of `epoch`,
/// `data_cursor`, `data_seed` and `config`.
struct Progress {
  uint64_t step = 0;        ///< Finished steps. Set by resume(); save() ignores it.
  uint64_t micro_step = 0;  ///< Micro-batches of the unfinished step. Set like `step`.
  uint64_t epoch = 0;
  uint64_t data_cursor = 0;
  uint64_t data_seed = 0;
  std::vector<std::pair<std::string, std::string>> config;
  /// Set by resume(): sentences about allowed differences, for example another device.
  std::vector<std::string> notes;
};

/// Options of Trainer::resume().
struct ResumeOptions {
  /// Allows Schedule::total_steps to differ from the checkpoint, to extend a finished run.
  bool extend = false;
};

/// The storage whose gradient is passed to a GradientHook.
struct GradientInfo {
  uint32_t tie = 0;                     ///< Tie index of the storage.
  std::vector<std::string> parameters;  ///< Names of all parameters that use it.
  TensorShape shape;                    ///< Shape of the storage.
  uint64_t step = 0;                    ///< Number of the step. The first step is 1.
};

/// Reads or changes the gradient of a storage before the update.
///
/// The Trainer calls the hook once per step for each trained storage. `gradient` is row-major. It
/// is the mean gradient of the step, without the loss scale and before clipping. The hook may write
/// to it. If the hook returns an error, micro_step() returns this error and does not update the
/// weights; see Trainer::state(). The hook must not call functions of the Trainer or its model,
/// except set_gradient_hook().
using GradientHook = std::function<Status(const GradientInfo& of, std::span<float> gradient)>;

/// Trains the trainable storages of a Model on one device.
///
/// A Model has at most one Trainer at a time. The Trainer owns the gradients, moments and masters.
/// Its destructor removes them. To keep them, call save() before. A Trainer can be moved.
///
/// The entry point may write BatchNorm running statistics, but no other state. The statistics are
/// updated once per micro-batch. If a step fails, is skipped or is restarted, they are restored to
/// their values from before the step.
///
/// With TrainOptions::processes, several processes train one model. All processes make the same
/// calls of create(), micro_step(), save() and resume(). One call of micro_step() is a *round*.
/// In a round, process r trains with micro-batch accumulated() + r of the step. If the step has no
/// such micro-batch, process r passes an empty batch. Then the processes sum their gradients, so
/// that all have the same weights after the step. Moments and masters of a storage are only in one
/// process, its *owner*. An error in one process is returned in all. It discards the unfinished
/// step.
class Trainer {
 public:
  /// \name Creating
  /// \{

  /// Creates a trainer. It adds gradients, moments and masters to the model.
  ///
  /// If the plan would exceed the memory budget of the device, it recomputes activations
  /// (PlanInfo::recomputed_nodes).
  ///
  /// Errors:
  /// - bad_argument: another Trainer of the model exists, or an option is out of range.
  /// - bad_argument: a storage is on another device, or no storage is trainable.
  /// - bad_argument: the loss is not a scalar.
  /// - bad_argument: a trainable storage has no effect on the loss. Freeze it.
  /// - bad_argument: an operator between a trainable storage and the loss has no gradient.
  /// - bad_argument: the model has no training state for TrainStart::from_checkpoint.
  /// - bad_argument: two sets of dimensions have inputs of the same shapes.
  /// - bad_argument: the processes have different models, options or versions of Bowline.
  /// - unsupported: the device cannot run a node, or the entry point writes unsupported state.
  /// - out_of_memory, over_budget: storages and plans do not fit, even with recomputation.
  static Result<Trainer> create(Model& model, const Device& device, const TrainOptions& options);

  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  /// \}
  /// \name Training
  /// \{

  /// Trains with one step. `batches` contains TrainOptions::accumulation micro-batches.
  ///
  /// If the step has finished micro-batches already, step() starts after them. So a failed call can
  /// be made again with the same batches. step() calls add_loss_weights() if needed.
  ///
  /// With several processes, `batches` contains the micro-batches of all of them.
  ///
  /// Errors: as micro_step().
  Result<StepReport> step(std::span<const std::span<const Tensor>> batches);

  /// Trains with one micro-batch. The last micro-batch of a step also updates the weights.
  ///
  /// - `batch`: all inputs by name. Their shapes must match TrainOptions::dims or one of more_dims.
  /// - `overrides`: values that replace parameters, as in Session::run(). The gradient is computed
  ///   with these values, but the update is applied to the weights of the model.
  ///
  /// Returns a report if the step is finished, else nothing. A failed call can be made again; see
  /// state(). The result then has the same bits as without the failure.
  ///
  /// Errors:
  /// - bad_argument: the batch fits no set of dimensions.
  /// - bad_argument: needs_loss_weights() is true, and add_loss_weights() was not called with the
  ///   micro-batches of the step, in their order.
  /// - bad_argument: needs_loss_weights() is true, and `overrides` are given.
  /// - index_out_of_range: an index or label is out of range. The unfinished step is discarded.
  /// - non_finite: see TrainOptions::on_nonfinite and max_nonfinite_in_row.
  /// - cancelled: cancel() was called.
  /// - device_lost: open the device again and resume from a checkpoint. Or another process does not
  ///   answer: end this process.
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
  /// Call it for the micro-batches in their order. It runs only the nodes that compute the loss
  /// weights. If needs_loss_weights() is false, it does nothing. After resume() in the middle of a
  /// step, call it again for all micro-batches of that step, including the finished ones.
  ///
  /// Errors: bad_argument: the batch fits no set of dimensions.
  Status add_loss_weights(std::span<const Tensor> batch);

  /// Cancels the running call that trains or evaluates. If none runs, cancels the next one.
  ///
  /// The cancelled call returns `cancelled`. The weights are as before the step. accumulated() says
  /// how many micro-batches of the step are still finished:
  /// - If the micro-batch had not begun, or was the first of its step, all of them are.
  /// - Otherwise the step is discarded, and accumulated() is 0. GradientSum::by_micro_batch keeps
  ///   the finished ones if one process trains.
  ///
  /// Training that continues from there has the same bits as without the cancelled call.
  ///
  /// The update of the weights is never cut short. So a request that comes during the update, or in
  /// a gradient hook, cancels the next call. For other rules, see Session::cancel().
  ///
  /// Threads: any thread, also a gradient hook. No other thread may destroy or move the Trainer at
  /// the same time.
  void cancel();

  /// Sets the learning rate of the next steps. Without a value, the schedule applies again.
  ///
  /// The factors of groups still apply. A checkpoint contains this learning rate. Errors:
  /// bad_argument: the rate is negative or not finite.
  Status set_learning_rate(std::optional<float> rate);

  /// Sets a hook for gradients. An empty hook removes it.
  ///
  /// With a hook, each step needs one more submission to the device. A hook may call this function;
  /// the new hook is used from the next step on.
  void set_gradient_hook(GradientHook hook);

  /// \}
  /// \name Evaluating
  /// \{

  /// Returns the loss of a batch without training: the model does not change, and dropout is off.
  /// Errors: as Session::run().
  Result<float> evaluate(std::span<const Tensor> batch);
  /// Also writes outputs of the entry point, by name, to `data` of each tensor in `outputs`.
  Result<float> evaluate(std::span<const Tensor> batch, std::span<const Tensor> outputs);

  /// Copies the gradient of a trained parameter to `out`: f32, with the shape of the parameter.
  ///
  /// The gradient is the sum over the micro-batches of the unfinished step, or of the last step if
  /// there is no unfinished one. It has no loss scale, and it is not yet averaged or clipped.
  ///
  /// Errors: bad_argument: the parameter is not trained, or no micro-batch ran yet.
  Status gradient(std::string_view name, const Tensor& out) const;

  /// Does the same as micro_step(), but returns the time of each node instead of a report.
  /// Errors: as micro_step() and Session::profile().
  Result<std::vector<NodeTime>> profile(std::span<const Tensor> batch);

  /// \}
  /// \name Snapshots and checkpoints
  /// \{

  /// Copies weights, training state and ties to host memory. Replaces an earlier snapshot.
  Status snapshot();

  /// Restores the last snapshot.
  ///
  /// This also undoes later changes by Model::tie(), untie(), freeze(), load() and set_value().
  /// Storages that untie() added since become empty (StorageInfo::empty).
  ///
  /// Errors: bad_argument: no snapshot exists, or parameters were declared after it.
  Status rollback();

  /// Writes a checkpoint atomically: the model, its training state, and the position `data`.
  ///
  /// With several processes, process 0 writes the file. Another number of processes can resume it.
  Status save(const std::string& path, const Progress& data) const;

  /// Writes a checkpoint as save() does, then frees the memory of the trainer and its model on the
  /// device.
  ///
  /// The program may then close the Device. To continue on this or another device, call Model::to()
  /// and resume(path). On the same kind of device, all later steps have the same bits as without
  /// the pause. Meanwhile, state() is `paused`, and calls that train return bad_argument. The
  /// weights are in the checkpoint file, which is memory-mapped: Model::get_value() and
  /// Model::save() read them there. Sessions of the model can run again after Model::to(). A
  /// snapshot() is dropped.
  ///
  /// Errors: as save(). Then the trainer is not paused.
  /// - unsupported: several processes train the model.
  Status pause(const std::string& path, const Progress& data);

  /// Verifies a checkpoint of the same model and options, then continues from it.
  ///
  /// On the same device, all later steps have the same bits as without the interruption.
  ///
  /// Errors: as Model::open().
  /// - bad_file: the model or the options differ. The message names the difference.
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
