// The state of a Session.
#pragma once

#include "exec/hoisted.h"
#include "exec/pending.h"
#include "graph/bind.h"

namespace bowline::detail::exec {

class SessionState final : public graph::User {
 public:
  // Makes no plans; see prepare(). `cancel`: (optional) cancels the runs instead of cancel().
  SessionState(std::shared_ptr<graph::ModelState> model, std::vector<BoundEntryPoint> entry_points,
               const Budget& budget, CancelRequest* cancel = nullptr);
  ~SessionState();
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  // Makes the plans again if the model changed since. They share one arena. `wanted`: the device
  // that the caller names (null: a Device that was moved from).
  // Errors  bad_argument: the storages of the plans are not on one device, or not on `wanted`.
  Status prepare(const std::optional<std::shared_ptr<device::OpenDevice>>& wanted = {});
  // `entry_point` can be left out if the session has only one.
  Status run(std::optional<std::string_view> entry_point, std::span<const Tensor> inputs,
             std::span<const Tensor> outputs, std::span<const StepScalar> steps,
             std::span<const Tensor> overrides = {});
  Result<std::vector<NodeTime>> profile(std::optional<std::string_view> entry_point,
                                        std::span<const Tensor> inputs,
                                        std::span<const StepScalar> steps);
  void cancel() { cancel_.ask(); }
  // Adds a run to the queue of the session.
  Result<std::shared_ptr<PendingState>> submit(const RunRequest& request);
  // Waits until no run is pending. While the result lives, none begins.
  // Errors  as RunQueue::settle().
  Result<std::unique_lock<device::Turns>> settle() const;
  void leave_device() override;
  MemoryReport memory() const;
  Counters counters() const { return counters_; }
  Result<PlanInfo> describe() const;
  Result<std::string> listing(std::string_view part, bool columns) const;

 private:
  // An entry point with its dimensions, and its recorded plan.
  struct Entry {
    const BoundEntryPoint* of;
    graph::BoundGraph bound;
    StepValues steps;
    Segment forward;
    graph::BoundGraph apart;  // the nodes hoisted out of `bound`
    std::optional<Hoisted> hoisted;
  };
  // An entry point whose plan has no memory on the device yet.
  struct Planned {
    graph::BoundGraph bound;
    plan::Plan plan;
    plan::StepLayout layout;
    bool fused = false;
    // The nodes that depend only on parameters. `hoisted` is set if there are any.
    graph::BoundGraph apart;
    std::optional<plan::Plan> hoisted;
  };

  // `compute`: the compute dtype of entry points that do not set one.
  Result<std::vector<graph::BoundGraph>> bind(std::optional<DType> compute) const;
  Result<std::vector<Planned>> plan(std::vector<graph::BoundGraph> bound,
                                    const device::OpenDevice& device) const;
  // Makes the plans of one entry point.
  Status lower(Planned& planned, const device::OpenDevice& device) const;
  // Returns the same plans with hoisting. It hoists all values that depend only on parameters, or
  // only the smallest ones if the arena would grow too much. Empty: there is nothing to hoist, or
  // hoisting does not fit the arena limit or the plan budget.
  Result<std::vector<Planned>> hoist(const std::vector<Planned>& planned,
                                     const device::OpenDevice& device) const;
  // As above, with at most `room` bytes of hoisted values.
  Result<std::vector<Planned>> hoist(const std::vector<Planned>& planned, uint64_t room,
                                     const device::OpenDevice& device) const;
  // Allocates the workspace and records the plans.
  Status place(std::vector<Planned> planned, const std::shared_ptr<device::OpenDevice>& device);
  // Tells the log callback about new plans.
  void log_plans() const;
  // Returns the heading of an entry point in a listing. Empty if there is only one.
  std::string heading(const BoundEntryPoint& entry) const;
  // Returns the entry whose plan fits a run.
  Result<Entry*> entry_for(std::optional<std::string_view> entry_point,
                           std::span<const Tensor> inputs);
  static Hoisted* hoisted_of(Entry& entry);
  // As exec::run(), with values that replace parameters in this run.
  Result<Refreshed> run_with(std::span<const Tensor> overrides, Entry& entry,
                             std::span<const Tensor> inputs);

  std::shared_ptr<graph::ModelState> model_;
  const std::vector<BoundEntryPoint> entry_points_;
  Budget budget_;
  Workspace workspace_;
  // False from the first run on that needs plans without fused nodes.
  bool may_fuse_ = true;
  bool fused_ = false;
  std::vector<Entry> entries_;                  // one per entry point; empty: there are no plans
  std::shared_ptr<device::OpenDevice> device_;  // of the plans
  Generations generations_;
  Counters counters_;
  CancelRequest own_cancel_;
  CancelRequest& cancel_;
  std::unique_ptr<RunQueue> queue_;  // from the first submit() on
};

// Adds what is on the device besides plans: storages, derived copies and staging buffers. Then
// computes the sum of all.
void complete(MemoryReport& report, const params::Table& table, const device::OpenDevice* device);

}  // namespace bowline::detail::exec
