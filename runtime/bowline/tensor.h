// Dtypes, shapes, views, dims and tensors in host memory.
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

enum class DType : uint8_t { f32, f16, bf16, i8, u8, i32, i64, boolean };

constexpr int kDTypes = 8;

// Bytes per element.
constexpr size_t size_of(DType t) {
  constexpr size_t sizes[kDTypes] = {4, 2, 2, 1, 1, 4, 8, 1};
  return sizes[static_cast<size_t>(t)];
}

constexpr std::string_view name_of(DType t) {
  constexpr std::string_view names[kDTypes] = {"f32", "f16", "bf16", "i8",
                                               "u8",  "i32", "i64",  "bool"};
  return names[static_cast<size_t>(t)];
}

// The dims of a tensor, up to 8, held inline. Made from a list, an array, a vector or a span. What
// is made from more dims says so when it is used: bad_argument.
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

  size_t size() const { return rank_; }
  int64_t operator[](size_t axis) const { return dims_[axis]; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return begin() + rank_; }
  bool operator==(const TensorShape& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  std::array<int64_t, 9> dims_{};  // one more than are allowed, so that too many are noticed
  size_t rank_ = 0;
};

// A view of host memory: contiguous, last dim fastest. The shape is its own, the name and the data
// are not.
struct Tensor {
  std::string_view name;
  DType dtype = DType::f32;
  TensorShape shape;
  void* data = nullptr;
};

// The value of a per-step scalar, which an operator reads anew in every run; the operator declares
// `name` (operators.md). Or the size of a dynamic dimension that no input has; `name` is then the
// name of the dimension.
struct StepScalar {
  std::string_view name;
  std::variant<uint64_t, double> value;  // a double: fractions, and what is negative

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

// The sizes that a named dimension may have. A plan is made for one size of each named dimension.
// If the dimension is dynamic, that size is a maximum: each run has a size of its own, that of its
// inputs or of a StepScalar with the name of the dimension.
struct DimLimits {
  int64_t min = 1;
  int64_t max = 2147483647;
  bool dynamic = false;
};

// The size of a named dimension in a plan: the maximum if the dimension is dynamic.
struct BoundDim {
  std::string name;
  int64_t value = 0;
};

// A declared view of a storage: rows [row_start, row_start + rows) of the first axis, then a
// reshape, then a transpose of the last two axes. The default is the whole storage. A view is
// always relative to the storage, never to what another parameter shows of it.
struct View {
  int64_t row_start = 0;
  int64_t rows = -1;           // -1: up to the last row
  std::vector<int64_t> shape;  // empty: no reshape
  bool transpose = false;
  bool operator==(const View&) const = default;
};

// A dim of an input, or a size among attributes: a number, or the name of a dim that is bound when
// a plan is made.
struct GraphDim {
  int64_t value = 0;
  std::string name;
  GraphDim(int v) : value(v) {}
  GraphDim(int64_t v) : value(v) {}
  GraphDim(const char* n) : name(n) {}
  GraphDim(std::string n) : name(std::move(n)) {}
  bool operator==(const GraphDim&) const = default;
};

// An entry point with its dims: what one plan is made of.
struct BoundEntryPoint {
  std::string name;
  std::vector<BoundDim> dims;
  // (optional) f16 or bf16: operators on f32 numbers read 16-bit copies of them and give such; sums
  // over many elements, exponentials and losses stay f32 (OpDef::stays_f32), as do the outputs.
  // Copies of storages are made once per version.
  std::optional<DType> compute_dtype = {};
};

}  // namespace bowline

#pragma GCC visibility pop
