// What a Session holds.
#pragma once

#include "exec/hoisted.h"
#include "graph/bind.h"

namespace bowline::detail::exec {

class SessionState final : public graph::User {
 public:
  // Plans come with prepare().
  SessionState(std::shared_ptr<graph::ModelState> model, std::vector<BoundEntryPoint> entry_points,
               const Budget& budget);
  ~SessionState();
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  // Makes the plans again if the model changed since. All of them lie in one arena. Errors
  // bad_argument: what they read does
  // not lie on one device, or not on the one that is asked for: null is one that was moved from.
  Status prepare(const std::optional<std::shared_ptr<device::OpenDevice>>& wanted = {});
  // None: the one entry point that there is.
  Status run(std::optional<std::string_view> entry_point, std::span<const Tensor> inputs,
             std::span<const Tensor> outputs, std::span<const StepScalar> steps,
             std::span<const Tensor> overrides = {});
  Result<std::vector<NodeTime>> profile(std::optional<std::string_view> entry_point,
                                        std::span<const Tensor> inputs,
                                        std::span<const StepScalar> steps);
  void leave_device() override;
  MemoryReport memory() const;
  Counters counters() const { return counters_; }
  Result<PlanInfo> describe() const;
  Result<std::string> listing(std::string_view part, bool columns) const;

 private:
  // An entry point with its dims.
  struct Entry {
    const BoundEntryPoint* of;
    graph::BoundGraph bound;
    StepValues steps;
    Segment forward;
    graph::BoundGraph apart;  // the nodes hoisted out of `bound`
    std::optional<Hoisted> hoisted;
  };
  // An entry as it is planned, before anything of it lies on the device.
  struct Planned {
    graph::BoundGraph bound;
    plan::Plan plan;
    plan::StepLayout layout;
    bool fused = false;
    // What follows from parameters alone. `hoisted` is a plan if anything does.
    graph::BoundGraph apart;
    std::optional<plan::Plan> hoisted;
  };

  // `compute`: of entry points that do not say it.
  Result<std::vector<graph::BoundGraph>> bind(std::optional<DType> compute) const;
  Result<std::vector<Planned>> plan(std::vector<graph::BoundGraph> bound,
                                    const device::OpenDevice& device) const;
  Status lower(Planned& planned, const device::OpenDevice& device) const;
  // Returns the same plans with hoisting. It hoists all values that depend only on parameters, or
  // only the smallest ones if the arena would grow too much. Empty: there is nothing to hoist, or
  // hoisting does not fit the arena limit or the plan budget.
  Result<std::vector<Planned>> hoist(const std::vector<Planned>& planned,
                                     const device::OpenDevice& device) const;
  // As above, with at most `room` bytes of held values.
  Result<std::vector<Planned>> hoist(const std::vector<Planned>& planned, uint64_t room,
                                     const device::OpenDevice& device) const;
  Status place(std::vector<Planned> planned, const std::shared_ptr<device::OpenDevice>& device);
  // Above what is listed of an entry point, where there are several.
  std::string heading(const BoundEntryPoint& entry) const;
  // The plan that a run is for.
  Result<Entry*> entry_for(std::optional<std::string_view> entry_point,
                           std::span<const Tensor> inputs);
  static Hoisted* hoisted_of(Entry& entry);
  // As exec::run(), with values that parameters have in this run alone.
  Result<Refreshed> run_with(std::span<const Tensor> overrides, Entry& entry,
                             std::span<const Tensor> inputs);

  std::shared_ptr<graph::ModelState> model_;
  const std::vector<BoundEntryPoint> entry_points_;
  Budget budget_;
  Workspace workspace_;
  // Until a run comes that fused plans are not right for; from then on the session has others.
  bool may_fuse_ = true;
  bool fused_ = false;
  std::vector<Entry> entries_;                  // by entry point; empty: there are no plans
  std::shared_ptr<device::OpenDevice> device_;  // of the plans
  Generations generations_;
  Counters counters_;
};

// What lies on the device besides the plans: storages, derived copies and staging. Then the sum of
// all.
void complete(MemoryReport& report, const params::Table& table, const device::OpenDevice* device);

}  // namespace bowline::detail::exec
