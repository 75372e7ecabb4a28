// Shape: up to 8 dims, without allocation. Tensors are contiguous and row-major.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <initializer_list>

#include "base/status.h"
#include "bowline.h"

namespace bowline {

constexpr int kMaxRank = 8;
constexpr int64_t kMaxDim = 2147483647;
constexpr int64_t kMaxElements = int64_t{1} << 40;

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
    assert(dims.size() <= kMaxRank);
    std::copy(dims.begin(), dims.end(), dims_.begin());
  }
  // Makes a shape from unchecked dims. Checks rank, dims and the number of elements.
  static Result<Shape> checked(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dims_[static_cast<size_t>(axis)]; }
  int64_t& operator[](int axis) { return dims_[static_cast<size_t>(axis)]; }
  // The last dim; 1 for a scalar.
  int64_t back() const { return rank_ == 0 ? 1 : dims_[static_cast<size_t>(rank_ - 1)]; }
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  int64_t elements() const { return elements(0, rank_); }
  // Product of the dims of axes [begin, end).
  int64_t elements(int begin, int end) const {
    int64_t n = 1;
    for (int a = begin; a < end; ++a) {
      n *= dims_[static_cast<size_t>(a)];
    }
    return n;
  }
  // Elements before the last axis; 1 for a vector.
  int64_t rows() const { return rank_ == 0 ? 1 : elements(0, rank_ - 1); }
  void push_back(int64_t dim) {
    assert(rank_ < kMaxRank);
    dims_[static_cast<size_t>(rank_++)] = dim;
  }
  bool operator==(const Shape& o) const { return std::ranges::equal(dims(), o.dims()); }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

void append_text(std::string& out, const Shape& shape);

// Returns the shape to which both broadcast, by the rules of NumPy.
Result<Shape> broadcast(const Shape& a, const Shape& b);

// Converts an axis in [-rank, rank) to [0, rank).
Result<int> normalise_axis(int64_t axis, int rank);

}  // namespace bowline
