// The plans of a trainer: accumulate (forward, backward, gradients), update (clip, optimizer) and
// evaluate.
#pragma once

#include <functional>

#include "exec/segment.h"
#include "graph/gradient.h"
#include "graph/loss_weight.h"
#include "graph/model_state.h"

namespace bowline::detail::train {

// The loss of one set of dims, up to which the forward part goes.
struct BoundLoss {
  graph::BoundGraph graph;
  graph::ValueId loss = 0;
};

// The plans of one set of dims, before anything of them lies on the device.
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

// Plans the entry point of a training. It changes neither the model nor the device.
class Planner {
 public:
  // Gives every per-step scalar of a training its value.
  using Fill = std::function<void(exec::StepValues& values)>;

  Planner(const graph::ModelState& model, const TrainOptions& options, Fill fill = {})
      : model_(model), options_(options), fill_(std::move(fill)) {}

  // The forward part up to the loss. It computes in the dtype of the options, or else in `compute`.
  Result<BoundLoss> bound_loss(std::span<const BoundDim> dims, std::optional<DType> compute) const;
  // Of every set of dims.
  Result<std::vector<BoundLoss>> bound_losses(std::optional<DType> compute) const;
  // What the model computes and with which parameters; equal for equal runs.
  Result<uint64_t> graph_hash() const;

  // `options.again` are the nodes whose activations are recomputed.
  Result<Plans> make(std::span<const BoundLoss> bound, const params::Table& staged,
                     const device::OpenDevice& device, const graph::GradientOptions& options) const;
  // Errors  bad_argument: two sets of dims take inputs of the same shapes.
  Status check_distinct(const Plans& plans) const;

 private:
  Result<std::vector<graph::FactoredLoss>> factored_losses(
      std::span<const BoundLoss> bound, const graph::GradientOptions& options) const;
  // Every trainable storage has a contribution to its gradient.
  Status check_gradients(const graph::BoundGraph& graph, const params::Table& table) const;

  const graph::ModelState& model_;
  const TrainOptions& options_;
  Fill fill_;
};

}  // namespace bowline::detail::train
