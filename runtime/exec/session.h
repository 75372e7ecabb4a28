// What a Session holds.
#pragma once

#include "exec/segment.h"

namespace bowline::exec {

class SessionState {
 public:
  SessionState(std::shared_ptr<graph::ModelState> model, std::string entry_point,
               std::vector<BoundDim> dims, const Budget& budget)
      : model_(std::move(model)),
        entry_point_(std::move(entry_point)),
        dims_(std::move(dims)),
        budget_(budget) {}

  // Makes the plan again if the model changed since.
  Status prepare();
  Status run(std::span<const Tensor> inputs, std::span<const Tensor> outputs);
  Result<std::vector<NodeTime>> profile(std::span<const Tensor> inputs);
  MemoryReport memory() const;
  Counters counters() const { return counters_; }
  Result<std::string> listing(std::string_view part, bool columns) const;

 private:
  std::shared_ptr<graph::ModelState> model_;
  std::string entry_point_;
  std::vector<BoundDim> dims_;
  Budget budget_;
  graph::Graph bound_;
  Workspace workspace_;
  std::optional<Segment> forward_;
  uint64_t stamp_ = 0;
  Counters counters_;
};

// Bytes of the storages with bytes, as a device allocates them.
uint64_t storage_bytes(const params::Table& table);

}  // namespace bowline::exec
