// Tensors of an ONNX file whose values are known while the file is read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"
#include "source/numbers.h"

namespace bowline::onnx {

namespace file {
class TensorProto;
}

// Limit for each constant that a lowering computes (index tables, masks, transform matrices), in
// elements, so that a small file cannot use much memory.
inline constexpr int64_t kMostComputed = int64_t{1} << 22;
// Limits for all computed constants of a model together, and for its nodes.
inline constexpr int64_t kMostComputedInAll = int64_t{1} << 24;
inline constexpr int64_t kMostNodes = int64_t{1} << 18;
// Limit for one value of a graph, in elements.
inline constexpr int64_t kMostElements = int64_t{1} << 40;
inline constexpr size_t kMostRank = 8;

// A tensor that owns its bytes.
struct ConstantTensor {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
  // Per element: the value depends on the size of the dynamic batch, for which a prime stands here.
  // Empty: no element does.
  std::vector<bool> of_batch;

  // Reals are rounded to the dtype. Integers keep their low bits.
  static ConstantTensor of(DType dtype, std::vector<int64_t> shape,
                           const std::vector<int64_t>& values);
  static ConstantTensor of(DType dtype, std::vector<int64_t> shape,
                           const std::vector<double>& values);

  size_t elements() const { return bytes.size() / size_of(dtype); }
  // True if all elements are equal.
  bool is_uniform() const;
  // The bytes as a key of a map.
  std::string_view content() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // Elements of a float dtype are truncated towards zero and clamped to i64.
  std::vector<int64_t> integers() const;
  std::vector<double> reals() const;
};

using import::is_float;

// "[2,3]"
std::string shape_text(const std::vector<int64_t>& shape);

// Returns the product of the dims.
// Errors  bad_file: a dim is negative, or there are more than kMostElements.
//         unsupported: there are more than 8 axes.
Result<int64_t> elements_of(const std::vector<int64_t>& shape);

// Converts a dtype number of ONNX.
// Errors  unsupported: Bowline has no such dtype; the message names it.
//         bad_file: ONNX has no such number.
Result<DType> dtype_of(int32_t onnx);

// Returns the values of a tensor. External data is read only from `folder`.
// Errors  bad_file: the bytes do not match the shape, or the external file is outside of the folder
//         or too short.
//         unsupported: as dtype_of().
Result<ConstantTensor> numbers_of(const file::TensorProto& tensor, const std::string& folder);

// Returns the `bytes` bytes of a tensor that are in a file beside the model.
// Errors  bad_file: the location is absolute, leaves `folder` or is a link, or the file is too
//         short.
// Source  ONNX, "External Data": location, offset and length. A location is relative to the folder
//         of the model.
Result<std::vector<std::byte>> external_bytes(const file::TensorProto& tensor,
                                              const std::string& folder, uint64_t bytes);

}  // namespace bowline::onnx
