#include "core/strides.h"

namespace bowline {

Strides strides_of(const Shape& shape) {
  Strides out{};
  int64_t step = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    out[static_cast<size_t>(axis)] = step;
    step *= shape[axis];
  }
  return out;
}

Strides broadcast_strides(const Shape& shape, const Shape& target) {
  const Strides own = strides_of(shape);
  Strides out{};
  const int missing = target.rank() - shape.rank();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    out[static_cast<size_t>(axis + missing)] =
        shape[axis] == 1 ? 0 : own[static_cast<size_t>(axis)];
  }
  return out;
}

Axes named_axes(std::span<const int32_t> axes, int rank) {
  Axes out{};
  for (int axis = 0; axis < rank; ++axis) {
    out[static_cast<size_t>(axis)] = axes.empty();
  }
  for (const int32_t axis : axes) {
    out[static_cast<size_t>(positive_axis(axis, rank))] = true;
  }
  return out;
}

Axes stretched_axes(const Shape& shape, const Shape& target) {
  Axes out{};
  const int missing = shape.rank() - target.rank();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    out[static_cast<size_t>(axis)] =
        axis < missing || (target[axis - missing] == 1 && shape[axis] != 1);
  }
  return out;
}

}  // namespace bowline
