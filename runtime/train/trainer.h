// What a Trainer holds. One training step is in step.cpp, checkpoints in checkpoint.cpp.
#pragma once

#include <atomic>

#include "exec/segment.h"
#include "graph/gradient.h"

namespace bowline::train {

class TrainerState {
 public:
  TrainerState(std::shared_ptr<graph::ModelState> model, TrainOptions options)
      : model_(std::move(model)), options_(std::move(options)) {}

  // Adds the rows and makes the plans; again when the model moved or changed since.
  Status prepare();
  Result<std::optional<StepReport>> micro_step(std::span<const Tensor> batch);
  Result<std::vector<NodeTime>> profile(std::span<const Tensor> batch);
  Result<float> evaluate(std::span<const Tensor> batch);
  Status snapshot();
  Status rollback();
  void cancel() { cancelled_ = true; }
  Status save(const std::string& path, const Progress& data) const;
  Result<Progress> resume(const std::string& path);

  uint64_t steps() const { return state_.step; }
  const TrainOptions& options() const { return options_; }
  MemoryReport memory() const;
  Counters counters() const { return counters_; }
  Result<std::string> listing(std::string_view part, bool columns) const;

 private:
  // Everything that a checkpoint restores besides the storages.
  struct Position {
    uint64_t step = 0;          // finished steps, skipped ones too
    uint64_t applied = 0;       // updates made: the t of AdamW
    uint64_t counter = 0;       // micro-batches since the run began: the counter of Dropout
    uint32_t micro_step = 0;    // inside the accumulation
    std::vector<float> losses;  // of the unfinished accumulation
  };

  // Every trainable storage has a contribution to its gradient.
  Status check_gradients(const graph::Graph& graph, const params::Table& table) const;
  device::StepScalars scalars() const;
  StepReport finish_step(const device::StepScalars& after);
  // The one output of the accumulate and evaluate segments.
  Result<float> read_loss(const plan::Plan& plan) const;
  void bump_versions(const plan::Plan& plan);
  std::string plan_text(bool columns) const;

  std::shared_ptr<graph::ModelState> model_;
  TrainOptions options_;
  Position state_;
  std::atomic<bool> cancelled_ = false;

  std::shared_ptr<device::OpenDevice> device_;
  uint64_t stamp_ = 0;
  graph::TrainingGraph training_;
  graph::Graph update_graph_;
  exec::Workspace workspace_;
  std::optional<exec::Segment> accumulate_;
  std::optional<exec::Segment> update_;
  std::optional<exec::Segment> evaluate_;
  Counters counters_;

  struct Snapshot {
    Position position;
    std::vector<std::vector<std::byte>> bytes;  // by tie index
  };
  std::optional<Snapshot> snapshot_;
};

}  // namespace bowline::train
