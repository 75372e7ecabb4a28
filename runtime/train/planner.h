// The plans of a trainer: accumulate (forward, backward, gradients), update (clip, optimizer) and
// evaluate.
#pragma once

#include <functional>

#include "exec/segment.h"
#include "graph/gradient.h"
#include "graph/loss_weight.h"
#include "graph/model_state.h"

namespace bowline::detail::train {

// The graph of the loss for one set of dimensions. It has only nodes that the loss depends on.
struct BoundLoss {
  graph::BoundGraph graph;
  graph::ValueId loss = 0;
};

// The plans of one set of dimensions. They have no memory on the device yet.
struct PlannedSet {
  graph::TrainingGraph training;
  plan::Plan accumulate;
  plan::Plan update;  // reads the loss where `accumulate` writes it
  plan::Plan evaluate;
  // Set if the loss has one factor per mean. It computes the divisors of the means for a batch.
  std::optional<plan::Plan> weigh;
  std::vector<graph::LossMean> means;
};

struct Plans {
  std::vector<PlannedSet> sets;  // in the order of sets_of_dims()
  graph::BoundGraph update_graph;
  double weight_unit = 1;  // GradientOptions::weight_unit
  std::optional<exec::StepValues> steps;
  exec::Workspace::Sizes sizes;
  bool dynamic_scale = false;

  std::vector<const plan::Plan*> all() const;
};

// Makes the plans of a trainer. It changes neither the model nor the device.
class Planner {
 public:
  // Sets the value of every per-step scalar of training.
  using Fill = std::function<void(exec::StepValues& values)>;

  Planner(const graph::ModelState& model, const TrainOptions& options, Fill fill = {})
      : model_(model), options_(options), fill_(std::move(fill)) {}

  // Returns the graph of the loss. `compute` is the compute dtype if the options set none.
  Result<BoundLoss> bound_loss(std::span<const BoundDim> dims, std::optional<DType> compute) const;
  // Returns one graph per set of dimensions.
  Result<std::vector<BoundLoss>> bound_losses(std::optional<DType> compute) const;
  // Returns a hash of the graph of the loss and its parameters, which a resumed run must share.
  Result<uint64_t> graph_hash() const;

  // Makes all plans. `options.again` contains the nodes whose activations are recomputed.
  Result<Plans> make(std::span<const BoundLoss> bound, const params::Table& staged,
                     const device::OpenDevice& device, const graph::GradientOptions& options) const;
  // Errors  bad_argument: two sets of dimensions have inputs of the same shapes.
  Status check_distinct(const Plans& plans) const;

 private:
  Result<std::vector<graph::FactoredLoss>> factored_losses(
      std::span<const BoundLoss> bound, const graph::GradientOptions& options) const;
  // Errors  bad_argument: the loss has no gradient for a trainable storage.
  Status check_gradients(const graph::BoundGraph& graph, const params::Table& table) const;

  const graph::ModelState& model_;
  const TrainOptions& options_;
  Fill fill_;
};

}  // namespace bowline::detail::train
