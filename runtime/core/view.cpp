#include "core/view.h"

namespace bowline {

Result<Shape> view_shape(const View& view, const Shape& storage) {
  Shape shape = storage;
  if (view.row_start != 0 || view.rows != -1) {
    BOWLINE_REQUIRE(storage.rank() >= 1, "The view selects rows, but the storage has rank 0.");
    const int64_t all = storage[0];
    BOWLINE_REQUIRE(view.row_start >= 0 && view.row_start <= all,
                    "The view starts at row {}, but the storage has {} rows.", view.row_start, all);
    const int64_t rest = all - view.row_start;
    BOWLINE_REQUIRE(view.rows >= -1 && view.rows <= rest,
                    "The view selects {} rows from row {} of a storage with {} rows.", view.rows,
                    view.row_start, all);
    shape[0] = view.rows == -1 ? rest : view.rows;
  }
  if (!view.shape.empty()) {
    BOWLINE_TRY_ASSIGN(const Shape reshaped, Shape::checked(view.shape));
    BOWLINE_REQUIRE(reshaped.elements() == shape.elements(),
                    "The view cannot reshape {} elements from {} to {}.", shape.elements(), shape,
                    reshaped);
    shape = reshaped;
  }
  if (view.transpose) {
    BOWLINE_REQUIRE(shape.rank() >= 2, "The view cannot transpose a shape of rank {}.",
                    shape.rank());
    std::swap(shape[shape.rank() - 1], shape[shape.rank() - 2]);
  }
  return shape;
}

ElementRun view_run(const View& view, const Shape& storage) {
  if (view.row_start == 0 && view.rows == -1) {
    return {0, storage.elements()};
  }
  const int64_t row = storage.elements(1, storage.rank());
  const int64_t rows = view.rows == -1 ? storage[0] - view.row_start : view.rows;
  return {view.row_start * row, rows * row};
}

}  // namespace bowline
