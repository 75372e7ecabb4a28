// What a Session holds.
#pragma once

#include "exec/segment.h"

namespace bowline::exec {

class SessionState final : public graph::User {
 public:
  SessionState(std::shared_ptr<graph::ModelState> model, std::string entry_point,
               std::vector<BoundDim> dims, const Budget& budget);
  ~SessionState();
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  // Makes the plan again if the model changed since.
  Status prepare();
  Status run(std::span<const Tensor> inputs, std::span<const Tensor> outputs,
             std::span<const StepValue> steps);
  Result<std::vector<NodeTime>> profile(std::span<const Tensor> inputs);
  void leave_device() override;
  MemoryReport memory() const;
  Counters counters() const { return counters_; }
  Result<PlanInfo> describe() const;
  Result<std::string> listing(std::string_view part, bool columns) const;

 private:
  std::shared_ptr<graph::ModelState> model_;
  std::string entry_point_;
  std::vector<BoundDim> dims_;
  Budget budget_;
  graph::Graph bound_;
  Workspace workspace_;
  std::optional<Segment> forward_;
  std::optional<StepValues> steps_;             // of the plan
  std::shared_ptr<device::OpenDevice> device_;  // of the plan
  Generations generations_;
  Counters counters_;
};

// What lies on the device besides the plans: storages and staging. Then the sum of all.
void complete(MemoryReport& report, const params::Table& table);

}  // namespace bowline::exec
