/// \file
/// Session: runs entry points of a model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bowline/budget.h"
#include "bowline/describe.h"
#include "bowline/device.h"
#include "bowline/model.h"
#include "bowline/status.h"
#include "bowline/tensor.h"

namespace bowline::detail::exec {
class PendingState;
class SessionState;
}  // namespace bowline::detail::exec

#pragma GCC visibility push(default)

namespace bowline {

/// Memory of a Session or Trainer, in bytes.
struct MemoryReport {
  uint64_t storage_bytes = 0;    ///< All storages of the model on the device.
  uint64_t copy_bytes = 0;       ///< Copies of weights in another dtype or layout.
  uint64_t arena_bytes = 0;      ///< Activations and hoisted values (see Session).
  uint64_t io_bytes = 0;         ///< Inputs, outputs and per-step scalars.
  uint64_t backend_bytes = 0;    ///< Tables and constants of kernels, sums of linked GPUs.
  uint64_t staging_bytes = 0;    ///< Staging buffers of the device.
  uint64_t predicted_bytes = 0;  ///< Sum of the fields above: the peak memory on the device.
  /// The most bytes of the arena that are in use at the same time. arena_bytes cannot be smaller.
  uint64_t lower_bound_bytes = 0;
};

/// What a Session or Trainer did.
struct Counters {
  uint64_t plan_builds = 0;  ///< Plans that were made.
  uint64_t recordings = 0;   ///< Recorded command lists: one or more per plan.
  uint64_t submits = 0;      ///< Submissions to the device.
  uint64_t refreshes = 0;    ///< Renewed copies of weights and hoisted values (see Session).
  uint64_t transfers = 0;    ///< Transfers of replicas and shards (placement.h) between devices.
  uint64_t hook_calls = 0;   ///< Calls of a GradientHook.
  /// Kernel launches, library calls, copies and fills in the last run or step. On the CPU: 0.
  uint64_t launches = 0;
};

/// The time that a node took on the device.
struct NodeTime {
  /// The part of the run:
  /// - "forward": a node of the entry point,
  /// - "refresh": renews an outdated copy of a weight,
  /// - "hoisted": recomputes a hoisted value,
  /// - "accumulate": forward and backward of a training step,
  /// - "update": the optimizer.
  std::string part;
  std::string name;    ///< The node, for example: node 17 "ln_f" (LayerNorm).
  std::string op;      ///< The operator, for example "LayerNorm".
  uint64_t count = 0;  ///< Executions: more than 1 in a Repeat.
  double ns = 0;       ///< Nanoseconds of all executions.
  /// Identifies the node in a tuning file (tune.h). Empty: the device has one way to run it.
  std::string tuning_key = {};
  uint32_t candidates = 0;  ///< The number of ways to run it that tune() measures.
};

/// The arguments of Session::submit(). See Session::run() for the first five.
struct RunRequest {
  std::string_view entry_point = {};  ///< Empty: the only entry point of the session.
  std::span<const Tensor> inputs = {};
  std::span<const Tensor> outputs = {};
  std::span<const StepScalar> scalars = {};
  std::span<const Tensor> overrides = {};
  /// (optional) Called after the run, in a thread of the session, with the result of the run.
  ///
  /// It may call submit() and cancel() of this session and functions of PendingRun, and it may
  /// destroy the session. Functions that run or describe the session return bad_argument.
  /// Exceptions that it throws are ignored.
  std::function<void(const Status& status)> done = {};
};

/// A run that Session::submit() accepted. Copies refer to the same run.
///
/// Threads: any thread may call the functions. They are safe after the Session was destroyed.
class PendingRun {
 public:
  ~PendingRun();
  PendingRun(const PendingRun&);
  PendingRun& operator=(const PendingRun&);
  PendingRun(PendingRun&&) noexcept;
  PendingRun& operator=(PendingRun&&) noexcept;

  /// Returns true after the run has ended. It does not wait.
  bool done() const;
  /// Waits until the run has ended, and returns its result. It does not wait for RunRequest::done.
  ///
  /// Errors: as Session::run().
  /// - cancelled: cancel() or Session::cancel() was called, or the Session was destroyed before the
  ///   run ended.
  /// - bad_argument: RunRequest::done of an earlier run called wait(), which would wait forever.
  /// - device_lost: the process is the child of a fork(), and the run had not ended before the
  /// fork.
  Status wait() const;
  /// Cancels this run, and no other. wait() then returns `cancelled`, unless the result of the run
  /// is complete. See Session::cancel() for how soon the run ends.
  void cancel() const;

 private:
  friend struct Internals;
  friend class Session;
  explicit PendingRun(std::shared_ptr<detail::exec::PendingState> state);
  std::shared_ptr<detail::exec::PendingState> state_;
};

/// Runs entry points of a Model on one device.
///
/// A Session has one plan for each BoundEntryPoint. Plans share memory for activations. After a
/// change of ties, shapes, dtypes or devices of the model, the next run makes new plans. Values
/// that depend only on parameters are *hoisted*: a run recomputes them only after a parameter
/// changed.
class Session {
 public:
  /// Creates a session for one entry point.
  ///
  /// All storages that the entry point reads must be on `device` (Model::to()). `dims` gives a size
  /// to each named dimension of the entry point. For a dynamic dimension, the size is the maximum.
  ///
  /// Errors:
  /// - bad_argument: there is no such entry point.
  /// - bad_argument: a named dimension has no size, or a size outside its DimLimits.
  /// - bad_argument: a storage is on another device. The message says where.
  /// - unsupported: the device does not support a node, or a dynamic dimension of it.
  /// - out_of_memory: the plan does not fit into memory. The message has the sizes.
  /// - over_budget: the plan exceeds `budget` or the memory budget of the device.
  static Result<Session> create(const Model& model, const Device& device,
                                std::string_view entry_point, std::span<const BoundDim> dims,
                                const Budget& budget = Budget::of_plan());

  /// Creates a session for several entry points, or for several sets of dimensions of one.
  ///
  /// Errors: as above.
  /// - bad_argument: two plans of one entry point have inputs of the same shapes.
  static Result<Session> create(const Model& model, const Device& device,
                                std::span<const BoundEntryPoint> entry_points,
                                const Budget& budget = Budget::of_plan());

  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  /// Runs the entry point of the session and waits for the result.
  ///
  /// - `inputs`: all inputs by name, in any order.
  /// - `outputs`: the outputs that the caller wants, by name. Others may be left out. An output is
  ///   copied to Tensor::data or Tensor::buffer.
  /// - `scalars`: per-step scalars of this run. A scalar that is not given has its default; for
  ///   example, Dropout does nothing unless "training" is 1. WriteRows needs "position".
  /// - `overrides`: values that replace parameters in this run, with the dtype and shape of the
  ///   parameter. The model does not change. The values also replace parameters that are tied to
  ///   this one. A run with overrides is slow: it copies the storages.
  ///
  /// The shapes of the inputs set the sizes of dynamic dimensions for this run, up to the maximum.
  /// If no input has the dimension, a scalar of the same name sets its size; the default is the
  /// maximum. Outputs must have these sizes. If the entry point has several plans, the run uses the
  /// smallest plan that takes the inputs.
  ///
  /// `outputs` are checked after the run. If this check or the run fails, parameters that the run
  /// writes, such as a kv_cache, may have changed.
  ///
  /// Errors: as create(), if new plans are made.
  /// - index_out_of_range: an index or label is out of range, or an integer divisor is 0.
  /// - bad_argument: an input or scalar is missing, unknown or has the wrong type.
  /// - bad_argument: an output is unknown, or its dtype or shape is wrong.
  /// - bad_argument: no plan has inputs of these shapes, or a dynamic size is out of range.
  /// - bad_argument: there are several entry points. Use the other run().
  /// - bad_argument: an override is unknown, or the entry point writes to its storage.
  /// - cancelled: cancel() was called.
  Status run(std::span<const Tensor> inputs, std::span<const Tensor> outputs,
             std::span<const StepScalar> scalars = {}, std::span<const Tensor> overrides = {});
  /// Runs one of several entry points.
  Status run(std::string_view entry_point, std::span<const Tensor> inputs,
             std::span<const Tensor> outputs, std::span<const StepScalar> scalars = {},
             std::span<const Tensor> overrides = {});

  /// Starts a run and returns at once, so that the caller can prepare the next run.
  ///
  /// Submitted runs take place one after the other, in the order of the calls. A thread of the
  /// session calls run() for each of them; the first submit() starts the thread. At most
  /// kMostPending runs can be pending.
  ///
  /// Names and scalars are copied. The data and buffers of inputs, outputs and overrides must stay
  /// valid until the run has ended. Outputs are complete then.
  ///
  /// While runs are pending, the Model counts as used by another thread: functions that would
  /// change it return bad_argument. Other functions of the Session wait for the pending runs first.
  /// The destructor cancels them and waits.
  ///
  /// Errors: PendingRun::wait() returns the errors of the run.
  /// - bad_argument: too many runs are pending. Wait for one of them.
  /// - out_of_memory: the system cannot start a thread.
  /// - device_lost: this is the child of a fork().
  Result<PendingRun> submit(const RunRequest& request);
  /// The most runs that can be pending.
  static constexpr size_t kMostPending = 64;

  /// Runs the entry point and measures the time of each node, in the order of execution.
  ///
  /// It runs the entry point, but copies no outputs. It is slower than run(): nodes do not overlap.
  ///
  /// Errors: as run().
  /// - unsupported: the device has no clock.
  /// - bad_argument: another profile() runs on the device.
  Result<std::vector<NodeTime>> profile(std::span<const Tensor> inputs,
                                        std::span<const StepScalar> scalars = {});
  /// Measures one of several entry points.
  Result<std::vector<NodeTime>> profile(std::string_view entry_point,
                                        std::span<const Tensor> inputs,
                                        std::span<const StepScalar> scalars = {});

  /// Cancels the running run() or profile(). If none runs, cancels the next one.
  ///
  /// The cancelled call returns `cancelled`. Parameters that the run writes, such as a kv_cache,
  /// may have changed. Other parameters keep their values. If the run writes no parameters, the
  /// next run has the same bits as without the cancelled one. A request is never lost: if it comes
  /// after the result of a run is complete, it cancels the next run. Until a call has returned
  /// `cancelled`, several requests count as one.
  ///
  /// The CPU stops within a node. Vulkan stops after at most two more submissions; Bowline makes
  /// each about 50 ms long, by its estimate. CUDA finishes a run or micro-batch that has begun.
  /// cancel() does not interrupt a call while it makes plans, copies weights, or waits for another
  /// call on the same Device.
  ///
  /// Threads: any thread, also a callback of the run. No other thread may destroy or move the
  /// Session at the same time.
  void cancel();

  /// Returns the memory of the session. After a run that could not make new plans, arena_bytes,
  /// io_bytes and backend_bytes are 0.
  MemoryReport memory() const;
  Counters counters() const;

  /// Returns the plans as plain structs (bowline/describe.h).
  ///
  /// Errors: bad_argument: the last run could not make new plans.
  Result<PlanInfo> describe() const;

  /// Returns a part of the plans as text, one numbered line per item.
  ///
  /// - `part`: "forward" lists the nodes of the graph. "build" lists copies of weights, hoisted
  ///   nodes and parameter lists of Repeats.
  /// - `columns`: adds node names and, to "build", the records (RecordInfo) with memory offsets.
  Result<std::string> listing(std::string_view part, bool columns = false) const;

 private:
  explicit Session(std::unique_ptr<detail::exec::SessionState> state);
  std::unique_ptr<detail::exec::SessionState> state_;
};

}  // namespace bowline

#pragma GCC visibility pop
