// The sizes of dynamic dimensions in one run, and tensors of these sizes.
#pragma once

#include "exec/step_values.h"

namespace bowline::detail::exec {

// Sets the size of every dynamic dimension in `values`: the size in the inputs, else the given
// per-step scalar, else the maximum.
// Errors  bad_argument: a size is out of range, or two sources give different sizes. The message
//         names both.
Status set_counts(const plan::Plan& plan, std::span<const Tensor> inputs, StepValues& values);

// Returns the shape that an input or output has in the run.
Shape counted_shape(const plan::Plan& plan, const plan::IoRange& range, const StepValues& values);

// Returns true if an input of this shape fits `range` with some sizes of the dynamic dimensions.
bool takes(const plan::Plan& plan, const plan::IoRange& range, const TensorShape& shape);
// Returns true if these tensors fit all inputs of the plan.
bool takes_all(const plan::Plan& plan, std::span<const Tensor> inputs);

// Returns the bytes of the largest input or output with a dynamic dimension; 0 without one.
uint64_t largest_counted(const plan::Plan& plan);

// spread() copies a contiguous tensor of `shape` into the larger layout of `range.shape` and fills
// the rest with zeros. gather() copies it back.
void spread(const plan::IoRange& range, const Shape& shape, const std::byte* from,
            std::span<std::byte> to);
void gather(const plan::IoRange& range, const Shape& shape, std::span<const std::byte> from,
            std::byte* to);

// Runs of bytes that are contiguous both in a tensor of `shape` and in the layout of `range.shape`.
struct Run {
  uint64_t in_plan = 0;  // offset
  uint64_t in_run = 0;   // offset
  uint64_t bytes = 0;
};
std::vector<Run> runs_of(const plan::IoRange& range, const Shape& shape);

}  // namespace bowline::detail::exec
