// Lines: the elements that differ in the index of one axis only. Reference implementations of
// operators along an axis iterate over lines.
#pragma once

#include "ops/op.h"

namespace bowline {

// Calls f(begin) for each line. A line has the elements begin, begin + step, ..., where `step` is
// the number of elements in the axes behind the axis. An empty axis has no lines.
template <class F>
void for_lines(const Shape& shape, int axis, F&& f) {
  const int64_t inner = shape.elements(axis + 1, shape.rank());
  for (int64_t outer = 0; shape[axis] > 0 && outer < shape.elements(0, axis); ++outer) {
    for (int64_t i = 0; i < inner; ++i) {
      f(static_cast<size_t>(outer * shape[axis] * inner + i));
    }
  }
}

inline size_t step_of(const Shape& shape, int axis) {
  return static_cast<size_t>(shape.elements(axis + 1, shape.rank()));
}

}  // namespace bowline
