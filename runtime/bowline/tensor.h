/// \file
/// Dtypes, shapes, tensors in host memory, and named dimensions.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "bowline/status.h"

#pragma GCC visibility push(default)

namespace bowline {

/// The type of an element.
enum class DType : uint8_t { f32, f16, bf16, i8, u8, i32, i64, boolean };

/// The number of dtypes.
constexpr int kDTypes = 8;

/// Returns the size of an element in bytes.
constexpr size_t size_of(DType t) {
  constexpr size_t sizes[kDTypes] = {4, 2, 2, 1, 1, 4, 8, 1};
  return sizes[static_cast<size_t>(t)];
}

/// Returns the name of a dtype, for example "f32". The name of DType::boolean is "bool".
constexpr std::string_view name_of(DType t) {
  constexpr std::string_view names[kDTypes] = {"f32", "f16", "bf16", "i8",
                                               "u8",  "i32", "i64",  "bool"};
  return names[static_cast<size_t>(t)];
}

/// The shape of a tensor: up to 8 dimensions. A scalar has none.
///
/// A shape can be made from a list, an array, a vector or a span. Functions return bad_argument for
/// shapes with more than 8 dimensions.
class TensorShape {
 public:
  TensorShape() = default;
  TensorShape(std::initializer_list<int64_t> dims)
      : TensorShape(std::span(dims.begin(), dims.size())) {}
  TensorShape(const int64_t* dims, size_t rank) : TensorShape(std::span(dims, rank)) {}
  template <size_t n>
  TensorShape(const int64_t (&dims)[n]) : TensorShape(std::span<const int64_t>(dims)) {}
  template <class Range>
    requires(!std::same_as<Range, TensorShape> &&
             std::convertible_to<const Range&, std::span<const int64_t>>)
  TensorShape(const Range& range) {
    const std::span<const int64_t> dims = range;
    rank_ = std::min(dims.size(), dims_.size());
    std::copy_n(dims.begin(), rank_, dims_.begin());
  }

  /// Returns the number of dimensions.
  size_t size() const { return rank_; }
  /// Returns the size of dimension `axis`. `axis` must be less than size().
  int64_t operator[](size_t axis) const { return dims_[axis]; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return begin() + rank_; }
  bool operator==(const TensorShape& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  std::array<int64_t, 9> dims_{};  // one more than is allowed, so that too many are noticed
  size_t rank_ = 0;
};

class DeviceBuffer;

/// A tensor in host memory, or in a buffer of a device. The values are contiguous and row-major.
///
/// A Tensor owns neither `name` nor `data` nor `buffer`. They must stay valid until the called
/// function returns.
struct Tensor {
  std::string_view name;  ///< Name of an input, an output or a parameter.
  DType dtype = DType::f32;
  TensorShape shape;
  void* data = nullptr;  ///< The first element. Inputs are only read. Null if `buffer` is set.
  /// (optional) The buffer that has the elements (buffer.h). Only for inputs and outputs of a
  /// Session, on the Device of the buffer.
  const DeviceBuffer* buffer = nullptr;
  uint64_t offset = 0;  ///< Where the elements begin in `buffer`, in bytes.
};

/// The value of a per-step scalar in one run, for example the position of the next token.
///
/// operators.md lists the per-step scalars of each operator. A StepScalar can also set the size of
/// a dynamic dimension that no input has. Its name is then the name of the dimension.
struct StepScalar {
  std::string_view name;
  std::variant<uint64_t, double> value;  ///< A double for floats and negative integers.

  StepScalar(std::string_view n, std::unsigned_integral auto v)
      : name(n), value(static_cast<uint64_t>(v)) {}
  StepScalar(std::string_view n, std::signed_integral auto v) : name(n) {
    if (v < 0) {
      value = static_cast<double>(v);
    } else {
      value = static_cast<uint64_t>(v);
    }
  }
  StepScalar(std::string_view n, std::floating_point auto v)
      : name(n), value(static_cast<double>(v)) {}
};

/// The sizes that a named dimension may have.
///
/// A plan has one size for each named dimension. If the dimension is dynamic, this size is a
/// maximum, and each run chooses its own size. Otherwise, every run has this size.
struct DimLimits {
  int64_t min = 1;
  int64_t max = 2147483647;
  bool dynamic = false;
};

/// The size of a named dimension in a plan. If the dimension is dynamic, `value` is its maximum.
struct BoundDim {
  std::string name;
  int64_t value = 0;
};

/// A dimension in a graph: a fixed size, or the name of a dimension.
struct GraphDim {
  int64_t value = 0;  ///< The size, if `name` is empty.
  std::string name;
  GraphDim(int v) : value(v) {}
  GraphDim(int64_t v) : value(v) {}
  GraphDim(const char* n) : name(n) {}
  GraphDim(std::string n) : name(std::move(n)) {}
  bool operator==(const GraphDim&) const = default;
};

/// An entry point with the sizes of its named dimensions: one plan.
struct BoundEntryPoint {
  std::string name;
  std::vector<BoundDim> dims;
  /// (optional) Mixed precision: f16 or bf16.
  ///
  /// Operators read f32 weights and activations as 16-bit copies. Losses, exponentials, sums over
  /// many elements and the outputs stay f32.
  std::optional<DType> compute_dtype = {};
};

/// The part of a storage that a parameter uses: selected rows, then reshaped, then transposed.
///
/// The default is the whole storage. A view is relative to the storage, not to another view.
struct View {
  int64_t row_start = 0;       ///< First row on the first axis.
  int64_t rows = -1;           ///< Number of rows. -1: all rows from `row_start`.
  std::vector<int64_t> shape;  ///< New shape of the selected rows. Empty: no reshape.
  bool transpose = false;      ///< Exchanges the last two axes.
  bool operator==(const View&) const = default;
};

}  // namespace bowline

#pragma GCC visibility pop
