// Strides (in elements) and axes of reductions, for backends.
#pragma once

#include "core/shape.h"

namespace bowline {

using Strides = std::array<int64_t, kMaxRank>;
using Axes = std::array<bool, kMaxRank>;

// Returns the strides of a contiguous tensor.
Strides strides_of(const Shape& shape);

// Returns the strides with which a tensor of shape `shape` is read as if it were broadcast to
// `target`: 0 for broadcast axes.
Strides broadcast_strides(const Shape& shape, const Shape& target);

// Converts an axis in [-rank, rank) to [0, rank).
constexpr int positive_axis(int64_t axis, int rank) {
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

// Returns the axes in `axes`, or all axes if `axes` is empty.
Axes named_axes(std::span<const int32_t> axes, int rank);

// Returns the axes of `shape` that must be summed to get `target`. `target` broadcasts to `shape`.
Axes stretched_axes(const Shape& shape, const Shape& target);

}  // namespace bowline
