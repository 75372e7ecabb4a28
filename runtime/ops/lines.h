// Lines: the elements that differ in one axis alone. What oracles of operators along an axis walk
// over.
#pragma once

#include "ops/op.h"

namespace bowline {

// f(begin): a line of `shape` holds the elements begin, begin + step, ... with step = elements
// behind the axis. There are none along an axis without elements.
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
