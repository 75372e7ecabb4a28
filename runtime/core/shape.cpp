#include "core/shape.h"

#include "base/checked.h"

namespace bowline {

Result<Shape> Shape::checked(std::span<const int64_t> dims) {
  BOWLINE_REQUIRE(dims.size() <= kMaxRank, "The shape has rank {} or more, above the limit of {}.",
                  kMaxRank + 1, kMaxRank);
  // Zeros count as 1, so that the product of every part of the shape fits.
  int64_t elements = 1;
  for (const int64_t d : dims) {
    BOWLINE_REQUIRE(d >= 0 && d <= kMaxDim, "Dim {} lies outside 0..{}.", d, kMaxDim);
    BOWLINE_REQUIRE(
        checked_mul(elements, std::max<int64_t>(d, 1), elements) && elements <= kMaxElements,
        "The shape has more than {} elements.", kMaxElements);
  }
  return Shape(dims);
}

void append_text(std::string& out, const Shape& shape) {
  out += '[';
  for (int a = 0; a < shape.rank(); ++a) {
    if (a > 0) {
      out += ',';
    }
    append_text(out, shape[a]);
  }
  out += ']';
}

Result<Shape> broadcast(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape out;
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank());
    const int ib = i - (rank - b.rank());
    const int64_t da = ia < 0 ? 1 : a[ia];
    const int64_t db = ib < 0 ? 1 : b[ib];
    BOWLINE_REQUIRE(da == db || da == 1 || db == 1, "Shapes {} and {} do not broadcast.", a, b);
    out.push_back(da == 1 ? db : da);
  }
  return out;
}

Result<int> normalise_axis(int64_t axis, int rank) {
  BOWLINE_REQUIRE(axis >= -rank && axis < rank, "Axis {} lies outside the rank ({}).", axis, rank);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace bowline
