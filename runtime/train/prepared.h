// The plans of a trainer as they lie on its device.
#pragma once

#include "train/planner.h"

namespace bowline::detail::train {

struct Prepared {
  // The plans of one set of dims.
  struct Set {
    graph::TrainingGraph training;
    exec::Segment accumulate;
    exec::Segment update;
    exec::Segment evaluate;
    std::optional<exec::Segment> weigh;
    std::vector<graph::LossMean> means;
  };

  std::vector<Set> sets;  // by set of dims; empty: there are no plans
  exec::Workspace workspace;
  std::optional<exec::StepValues> steps;  // after a submission, what came back
  graph::BoundGraph update_graph;
  double weight_unit = 1;  // GradientOptions::weight_unit of the plans
  bool dynamic_scale = false;
  std::shared_ptr<device::OpenDevice> device;
  exec::Generations generations;

  static Result<Prepared> record(Plans plans, params::Table& staged,
                                 const std::shared_ptr<device::OpenDevice>& device);
  // Frees what lies on the device.
  void drop();
  bool match(const params::Table& table) const { return !sets.empty() && generations.match(table); }

  // The number of the set of dims that a batch is of. Errors  bad_argument: of none.
  Result<size_t> set_for(std::span<const Tensor> batch, const TrainOptions& options) const;
  // Of a step.
  uint64_t launches_of(size_t set, const TrainOptions& options) const;
  // Output 0 of the accumulate and evaluate segments, the loss, or output 1 of accumulate, its
  // weight.
  Result<float> read_output(const plan::Plan& plan, size_t number) const;
  // The sum of the weights of the terms of the micro-batch that ran last.
  Result<double> read_weight(const Set& set) const;

  void add_to(MemoryReport& report) const;
  Result<PlanInfo> describe(const TrainOptions& options) const;
  Result<std::string> listing(std::string_view part, bool columns,
                              const TrainOptions& options) const;
};

// Plans for `staged`, which waits for the rows of training, and gives these their memory.
// Activations are recomputed where memory is short.
Result<Prepared> prepare(const Planner& planner, std::span<const BoundLoss> bound,
                         params::Table& staged, const std::shared_ptr<device::OpenDevice>& device);

}  // namespace bowline::detail::train
