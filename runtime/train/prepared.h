// The recorded plans of a trainer, with their memory on the device.
#pragma once

#include "train/planner.h"

namespace bowline::detail::train {

struct Prepared {
  // The segments of one set of dimensions.
  struct Set {
    graph::TrainingGraph training;
    exec::Segment accumulate;
    exec::Segment update;
    exec::Segment evaluate;
    std::optional<exec::Segment> weigh;
    std::vector<graph::LossMean> means;

    template <class Each>
    void for_each_segment(const Each& each) const {
      each(accumulate);
      each(update);
      each(evaluate);
      if (weigh) {
        each(*weigh);
      }
    }
  };

  std::vector<Set> sets;  // in the order of sets_of_dims(); empty: there are no plans
  exec::Workspace workspace;
  std::optional<exec::StepValues> steps;  // after a submission: the values that it wrote
  graph::BoundGraph update_graph;
  double weight_unit = 1;  // GradientOptions::weight_unit of the plans
  bool dynamic_scale = false;
  std::shared_ptr<device::OpenDevice> device;
  exec::Generations generations;

  // Allocates the workspace and records the plans.
  static Result<Prepared> record(Plans plans, params::Table& staged,
                                 const std::shared_ptr<device::OpenDevice>& device);
  // Frees the recordings and the workspace.
  void drop();
  // Returns true if the plans were made for the table as it is now.
  bool match(const params::Table& table) const { return !sets.empty() && generations.match(table); }

  // Returns the number of the set of dimensions that fits a batch. A single set is not checked.
  // Errors  bad_argument: no set fits.
  Result<size_t> set_for(std::span<const Tensor> batch, const TrainOptions& options) const;
  // Returns the launches of one training step.
  uint64_t launches_of(size_t set, const TrainOptions& options) const;
  // Reads a scalar output. Output 0 of accumulate and evaluate is the loss, and output 1 of
  // accumulate is the loss weight. The outputs of `weigh` are divisors of means.
  Result<float> read_output(const plan::Plan& plan, size_t number) const;
  // Returns the loss weight of the last micro-batch.
  Result<double> read_weight(const Set& set) const;

  void add_to(MemoryReport& report) const;
  Result<PlanInfo> describe(const TrainOptions& options) const;
  Result<std::string> listing(std::string_view part, bool columns,
                              const TrainOptions& options) const;
};

// Makes and records the plans for `staged`, and allocates its rows of training. If the plans exceed
// the memory budget, activations are recomputed.
Result<Prepared> prepare(const Planner& planner, std::span<const BoundLoss> bound,
                         params::Table& staged, const std::shared_ptr<device::OpenDevice>& device);

}  // namespace bowline::detail::train
