// What a declared view shows of a storage.
#pragma once

#include "core/shape.h"

namespace bowline {

// The shape that a view of a storage shows. Errors  bad_argument: it does not fit.
Result<Shape> view_shape(const View& view, const Shape& storage);

// The part of the storage that the view covers: always one run of elements. The view fits.
struct ElementRun {
  int64_t first = 0;
  int64_t count = 0;
};
ElementRun view_run(const View& view, const Shape& storage);

}  // namespace bowline
