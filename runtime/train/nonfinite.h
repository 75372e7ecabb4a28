// Steps whose loss, gradient or new weights are not finite.
#pragma once

#include <functional>

#include "train/planner.h"

namespace bowline::detail::train {

// Counts non-finite steps and reacts to them as OnNonFinite says.
class NonFinitePolicy {
 public:
  explicit NonFinitePolicy(const TrainOptions& options)
      : reaction_(options.on_nonfinite), max_in_row_(options.max_nonfinite_in_row) {}

  // Whether a step that cannot be applied fails, instead of being skipped or rolled back.
  bool stops() const { return reaction_ == OnNonFinite::stop; }
  // Counts a finished step, and rolls back if the options say so. Returns the report with the
  // counts. `roll_back` restores the snapshot; empty: there is none.
  // Errors  non_finite: the new weights are not finite and stops(), there is no snapshot, or too
  //         many steps in a row were not finite. Errors of `roll_back`.
  Result<StepReport> conclude(StepReport report, const params::Table& table,
                              const std::function<Status()>& roll_back);

 private:
  OnNonFinite reaction_;
  uint32_t max_in_row_;
  uint32_t in_row_ = 0;
  uint64_t steps_ = 0;
  uint64_t rolled_back_from_ = 0;  // the step that was rolled back last
};

// Describes for a message which weight, node and gradient are the first with a non-finite value.
// Slow: runs the forward pass `loss` again with each value as an output. If that fails, the text
// says so.
std::string describe_non_finite(const Result<BoundLoss>& loss, std::span<const Tensor> batch,
                                params::Table& table,
                                const std::shared_ptr<device::OpenDevice>& device,
                                const Planner::Fill& fill);

}  // namespace bowline::detail::train
