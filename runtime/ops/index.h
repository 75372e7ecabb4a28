// Index: iterates over the elements of a shape in row-major order. Used by reference
// implementations, so it is simple and slow.
#pragma once

#include "core/shape.h"

namespace bowline {

// for (Index i(shape); i.valid(); i.next()) { ... i[axis] ... i.flat() ... }
class Index {
 public:
  explicit Index(const Shape& shape) : shape_(shape), left_(shape.elements()) {}

  bool valid() const { return left_ > 0; }
  void next() {
    --left_;
    ++flat_;
    for (int a = shape_.rank() - 1; a >= 0; --a) {
      if (++at_[static_cast<size_t>(a)] < shape_[a]) {
        return;
      }
      at_[static_cast<size_t>(a)] = 0;
    }
  }
  int64_t operator[](int axis) const { return at_[static_cast<size_t>(axis)]; }
  size_t flat() const { return flat_; }

  // The position in a tensor of shape `whole` of the element at this index, moved by `offset` along
  // an axis.
  size_t in_whole(const Shape& whole, int axis, int64_t offset) const {
    int64_t position = 0;
    for (int a = 0; a < whole.rank(); ++a) {
      position = position * whole[a] + (*this)[a] + (a == axis ? offset : 0);
    }
    return static_cast<size_t>(position);
  }
  // The position in a tensor of shape `from`, which broadcasts to this shape, of the element at
  // this index.
  size_t in_broadcast(const Shape& from) const {
    int64_t position = 0;
    for (int a = 0; a < from.rank(); ++a) {
      const int64_t i = (*this)[a + shape_.rank() - from.rank()];
      position = position * from[a] + (from[a] == 1 ? 0 : i);
    }
    return static_cast<size_t>(position);
  }

 private:
  Shape shape_;
  std::array<int64_t, kMaxRank> at_{};
  int64_t left_ = 0;
  size_t flat_ = 0;
};

}  // namespace bowline
