// The numbers that the counted dims of a plan have in one run, and tensors that have as many
// elements.
#pragma once

#include "exec/step_values.h"

namespace bowline::detail::exec {

// Gives `values` the number of every counted dim: that of the inputs, else the one that was given,
// else the capacity.
// Errors  bad_argument: a number lies outside the limits of the dim, or two of them differ; both
//         are named.
Status set_counts(const plan::Plan& plan, std::span<const Tensor> inputs, StepValues& values);

// The shape that an input or output has in the run.
Shape counted_shape(const plan::Plan& plan, const plan::IoRange& range, const StepValues& values);

// Whether an input of this shape can be one of the range in some run.
bool takes(const plan::Plan& plan, const plan::IoRange& range, const TensorShape& shape);
// Whether these can be the inputs of a run of the plan.
bool takes_all(const plan::Plan& plan, std::span<const Tensor> inputs);

// The bytes of the largest input or output with counted axes; 0 without one.
uint64_t largest_counted(const plan::Plan& plan);

// Elements of a contiguous tensor of `shape` to their places in one of `range.shape`, with zeros
// behind them, and back.
void spread(const plan::IoRange& range, const Shape& shape, const std::byte* from,
            std::span<std::byte> to);
void gather(const plan::IoRange& range, const Shape& shape, std::span<const std::byte> from,
            std::byte* to);

}  // namespace bowline::detail::exec
