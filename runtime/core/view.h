// The shape and the elements of a view of a storage.
#pragma once

#include "core/shape.h"

namespace bowline {

// Returns the shape of a view.
// Errors  bad_argument: the view does not fit the storage.
Result<Shape> view_shape(const View& view, const Shape& storage);

// The elements of the storage that a view uses: always one contiguous run. The view must fit.
struct ElementRun {
  int64_t first = 0;
  int64_t count = 0;
};
ElementRun view_run(const View& view, const Shape& storage);

}  // namespace bowline
