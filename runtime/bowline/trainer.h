// Trains models.
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

// What a step does whose loss or gradient norm is not finite. Its update is never applied.
enum class OnNonFinite : uint8_t {
  skip,  // goes on with the next one
  stop,  // micro_step() fails with non_finite; the step begins anew. The message names the first
         // bad node or parameter.
  rollback,  // goes back to the last snapshot, and on from there; a row goes on until a step after
             // the bad one is finite
};

// Where a Trainer begins.
enum class TrainStart : uint8_t {
  fresh,            // at step 0 with new moments; what a checkpoint file brought is dropped
  from_checkpoint,  // with the moments, the step and the counters that the model holds, which was
                    // opened from a checkpoint; an unfinished accumulation begins anew
};

// Options of the storages whose parameters match a pattern ("*": any characters, "?": one).
struct ParameterGroup {
  std::string pattern;
  float learning_rate_factor = 1;          // of the schedule
  std::optional<float> weight_decay = {};  // instead of the optimizer's, whatever the rank
};

// In which dtypes a training computes. A storage in 16 bits is trained in f32: the Trainer keeps a
// master of it (role master), which the optimizer updates, and the storage is the master rounded.
// Gradients of storages are f32 always.
struct TrainPrecision {
  std::optional<DType> compute_dtype = {};  // as BoundEntryPoint::compute_dtype
  // What the loss is multiplied with while gradients are computed, and the update divides by. 0: 1,
  // unless some gradient is f16: then dynamic, from initial_scale on: halved by a step whose
  // gradients are not finite, which is skipped, and doubled after `growth_interval` steps in a row
  // that were.
  float loss_scale = 0;
  float initial_scale = 32768;
  uint32_t growth_interval = 2000;
};

struct TrainOptions {
  std::string entry_point = "loss";
  std::string loss = "loss";  // the scalar output that is minimised
  std::vector<BoundDim> dims;
  // (optional) Other sets of dims, such as of shorter rows: a micro-batch runs in the plan that
  // takes its shapes. The plans have one set of gradients and moments, and one arena.
  std::vector<std::vector<BoundDim>> more_dims;
  Optimizer optimizer;
  Schedule schedule;
  float clip_norm = 0;  // 0: not clipped
  // Micro-batches per optimizer step (gradient accumulation). The loss and the gradient of a step
  // are the sum of all terms of its micro-batches, divided by the sum of all their weights: labels
  // that count, class weights, masks, elements. So the split changes only the rounding, and a
  // micro-batch without labels adds nothing. A weight is the divisor that an operator uses: of a
  // mean loss, of ReduceMean, of a Div by a value that depends on the inputs. A loss may add
  // several means with different weights, such as masked words and next sentences. Each mean then
  // has its own sum over the step. The sums must be known before the first micro-batch runs, so
  // call step(), or call add_loss_weights() first. If a loss has no mean (for example a sum), every
  // micro-batch has the same weight. Some terms depend on all rows of a batch: BatchNorm
  // statistics, in-batch negatives, expert load balancing, products of means. These terms are
  // computed separately in each micro-batch.
  uint32_t accumulation = 1;
  uint64_t seed = 0;                  // of dropout
  Budget budget = Budget::of_plan();  // of each of the plans
  // The first group with a match counts. Two parameters of one storage in two groups are an error
  // that names both, and so is a pattern without a match among the trainable ones.
  std::vector<ParameterGroup> groups;
  TrainStart start = TrainStart::fresh;
  OnNonFinite on_nonfinite = OnNonFinite::skip;
  uint32_t max_nonfinite_in_row = 5;  // then micro_step() fails with non_finite; 0: never
  TrainPrecision precision;
};

struct StepReport {
  uint64_t step = 0;    // 1-based number of the step that was run
  float loss = 0;       // mean over the micro-batches
  float grad_norm = 0;  // global L2 norm before clipping
  float learning_rate = 0;
  float loss_scale = 1;  // of this step
  // A loss or the norm was not finite: weights and running statistics are as before.
  bool skipped = false;
  bool rolled_back =
      false;  // and then as in the last snapshot (OnNonFinite::rollback); so is steps()
  // The update made a weight that is not finite: no later step can mend it.
  bool weights_non_finite = false;
  uint32_t nonfinite_in_row = 0;  // steps that were not finite, up to this one
  uint64_t nonfinite_steps = 0;   // of this Trainer
};

// What a failed call has left. Every other failure of a Trainer leaves all as before: the call can
// be made again.
enum class TrainState : uint8_t {
  ready,
  // The last micro-batch was submitted, and reading its result failed. micro_step() with the same
  // batch reads again and submits nothing; any other batch is refused. Until then nothing but
  // rollback() and resume() is allowed.
  unread,
  // The gradients of the unfinished step are lost, the weights are whole: restart_step() and the
  // batches of the step once more give the bits of a run without failure. So do rollback() and
  // resume().
  gradients_lost,
  // Weights or moments may be partly written: rollback() or resume(), again if it was one of these
  // that failed.
  damaged,
};

// What a checkpoint says about the run besides the weights; `data_*` and `config` are the caller's.
struct Progress {
  uint64_t step = 0;
  uint64_t micro_step = 0;  // position inside an accumulation
  uint64_t epoch = 0;
  uint64_t data_cursor = 0;
  uint64_t data_seed = 0;
  std::vector<std::pair<std::string, std::string>> config;
  // Of resume(): what differs and is no reason to refuse, such as another device. Sentences.
  std::vector<std::string> notes;
};

struct ResumeOptions {
  // Schedule::total_steps may differ from that of the checkpoint: a finished run goes on.
  bool extend = false;
};

// A trained storage whose gradient a hook sees.
struct GradientInfo {
  uint32_t tie = 0;
  std::vector<std::string> parameters;  // all names of the storage
  TensorShape shape;                    // of the storage
  uint64_t step = 0;                    // 1-based, of the update that takes it
};
// Is called once per step for each trained storage, however many names and uses it has, between the
// last micro-batch and the update. `gradient` is the mean over the micro-batches, before the clip;
// what the hook writes there the update takes. A failure ends the step, and state() says how to go
// on.
using GradientHook = std::function<Status(const GradientInfo& of, std::span<float> gradient)>;

// Fine-tunes the trainable storages of a Model on one Device. Move-only. Batches have the size that
// TrainOptions::dims say, or one of more_dims, of counted dims too. Of states the entry point may
// write running statistics (BatchNorm), once per micro-batch; a step that fails, is skipped or
// begins anew puts back those of its begin, or of where a rollback() or resume() within it went on.
// Others are refused (unsupported).
//
// The training state has one owner: gradients, moments and the position live and go with the
// Trainer, of which a Model has at most one at a time. What lasts is written by save() and read by
// resume() or TrainStart::from_checkpoint.
class Trainer {
 public:
  // Adds gradients and moments to the table. Errors  bad_argument: another Trainer of the model
  // lives (busy), an option is out
  // of its range, a trainable storage gets no gradient, an operator on a path to one has no
  // gradient (both named), the loss is not a scalar, there is nothing to continue, two sets of dims
  // take inputs of the same shapes. out_of_memory, over_budget: rows and plans do not fit, also if
  // what can be computed again is not kept (PlanInfo::recomputed_nodes); with the bytes.
  static Result<Trainer> create(Model& model, const Device& device, const TrainOptions& options);
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  // Adds the gradient of one micro-batch; the accumulation-th one clips and updates. Returns the
  // report of the finished step, or none. Errors  bad_argument: needs_loss_weights() is true, and
  // add_loss_weights() did not get every micro-batch of the step, or got another batch at this
  // position, or `overrides` are given. index_out_of_range: the weights are as before the step,
  // which begins anew with the next micro-batch. cancelled. device_lost. After any failure state()
  // says how to go on; a call that is made again then gives the bits of a run without failure.
  // `overrides`: as in Session::run(); the gradient is taken where they are, and the update is that
  // of the weights as they stand.
  Result<std::optional<StepReport>> micro_step(std::span<const Tensor> batch,
                                               std::span<const Tensor> overrides = {});
  // A whole step: `batches` holds one batch per micro-batch. It goes on after those that the
  // unfinished step has, so a call that failed can be made again. It calls add_loss_weights() where
  // that is needed.
  Result<StepReport> step(std::span<const std::span<const Tensor>> batches);
  // True if a step has several micro-batches and the loss adds means that are divided by different
  // sums. Then micro_step() needs the sums of the whole step.
  bool needs_loss_weights() const;
  // Adds the weights of one micro-batch to the sums of the next step. If needs_loss_weights() is
  // true, call add_loss_weights() with each micro-batch of a step, in order, before the first
  // micro_step(). After resume() in the middle of a step, call add_loss_weights() again with every
  // micro-batch of that step, also the finished ones. add_loss_weights() runs only what the sums
  // need, such as counting labels. If needs_loss_weights() is false, it does nothing. Errors
  // bad_argument: the batch fits no set of dims.
  Status add_loss_weights(std::span<const Tensor> batch);
  // A micro_step() with the device's clock around every node: a real one, after which the weights
  // are those of micro_step().
  // Errors  as Session::profile().
  Result<std::vector<NodeTime>> profile(std::span<const Tensor> batch);
  // The loss of a batch; nothing changes, dropout is off.
  Result<float> evaluate(std::span<const Tensor> batch);
  // The same, and writes outputs of the entry point by name.
  Result<float> evaluate(std::span<const Tensor> batch, std::span<const Tensor> outputs);

  // The gradient of a trainable parameter, through its view, into f32 of its shape: the sum over
  // the micro-batches of the unfinished step or, between two steps, of the last one; over all uses
  // of its storage, before the mean and the clip. With accumulation a micro-batch in which only a
  // part of the terms counts is weighted with that part.
  // Errors  bad_argument: the parameter is not trained, or no micro-batch was run since the start
  //         or the last restore.
  Status gradient(std::string_view name, const Tensor& out) const;
  // Null: none. Steps with a hook are submitted in two parts. One that is set while a hook runs
  // counts from the next step on; what else a hook calls of its Trainer, and verbs of the model,
  // are refused (busy).
  void set_gradient_hook(GradientHook hook);
  // The rate of the next steps instead of the schedule's; none: the schedule's again. A checkpoint
  // keeps it.
  Status set_learning_rate(std::optional<float> rate);

  // Keeps in host memory, or restores, the weights, the training state and the partition: what tie,
  // untie, freeze, load and set_value did since is undone. Rows that were added since stay as empty
  // ones. Storages of the same size are written in
  // place. Errors of rollback  bad_argument: there is no snapshot; parameters were declared since.
  Status snapshot();
  Status rollback();
  // Asks the running step to stop. The step returns `cancelled` before its next submission, and the
  // weights stay as they were. While no step runs, the request is kept: the next step returns
  // `cancelled` at once, and the step after it runs.
  // Threads  any thread.
  void cancel();

  // A checkpoint: the model with moments, pending gradients and the training state. Atomic.
  Status save(const std::string& path, const Progress& data) const;
  // Continues from a checkpoint bit for bit. Everything is verified first; then storages are
  // written in place. Errors bad_file: it belongs to another model, partition, graph or run, or its
  // training state is not legal; what differs is named.
  Result<Progress> resume(const std::string& path, const ResumeOptions& options = {});

  // How to go on after a failure.
  TrainState state() const;
  // Forgets the micro-batches of the unfinished step; the next one begins the step anew.
  Status restart_step();
  uint64_t steps() const;
  // Micro-batches of the unfinished step.
  uint32_t accumulated() const;
  // Arena, io and backend are 0 while there is no plan: after planning failed, until a call plans
  // again.
  MemoryReport memory() const;
  Counters counters() const;
  // As Session::describe().
  Result<PlanInfo> describe() const;
  // As Session::listing(), of "build", "forward", "backward", "update".
  Result<std::string> listing(std::string_view part, bool columns = false) const;

 private:
  explicit Trainer(std::unique_ptr<detail::train::TrainerState> state);
  std::unique_ptr<detail::train::TrainerState> state_;
};

}  // namespace bowline

#pragma GCC visibility pop
