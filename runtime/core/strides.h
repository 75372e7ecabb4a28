// How backends walk over tensors: strides in elements, and which axes a reduction takes.
#pragma once

#include "core/shape.h"

namespace bowline {

using Strides = std::array<int64_t, kMaxRank>;
using Axes = std::array<bool, kMaxRank>;

// Of a contiguous tensor.
Strides strides_of(const Shape& shape);

// Those with which `shape` is read as if it had the dims of `target` (numpy rules: aligned at the
// last axis): 0 where it stretches.
Strides broadcast_strides(const Shape& shape, const Shape& target);

// An axis in [-rank, rank) as one in [0, rank).
constexpr int positive_axis(int64_t axis, int rank) {
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

// The named axes of a tensor of this rank; all of them where none is named.
Axes named_axes(std::span<const int32_t> axes, int rank);

// The axes of `shape` over which a sum gives `target`, to which it broadcasts back.
Axes stretched_axes(const Shape& shape, const Shape& target);

}  // namespace bowline
