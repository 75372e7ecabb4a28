// Tensors of an ONNX file whose numbers are known while it is read.
#pragma once

#include <string>
#include <vector>

#include "bowline.h"

namespace bowline::onnx {

namespace file {
class TensorProto;
}

// Constants that a lowering computes (tables of indices, masks, bases of transforms) have at most
// so many elements, so that a small file cannot ask for much memory.
inline constexpr int64_t kMostComputed = int64_t{1} << 22;
// All of them of a model together, and the nodes that it becomes.
inline constexpr int64_t kMostComputedInAll = int64_t{1} << 24;
inline constexpr int64_t kMostNodes = int64_t{1} << 18;
// Elements of one value of a graph.
inline constexpr int64_t kMostElements = int64_t{1} << 40;
inline constexpr size_t kMostRank = 8;

// A tensor that owns its bytes.
struct Numbers {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
  // By element: it follows from the size of a dynamic batch, of which a prime stands here. Empty:
  // none does.
  std::vector<bool> of_batch;

  // Numbers are rounded to the dtype; integers keep their low bits.
  static Numbers of(DType dtype, std::vector<int64_t> shape, const std::vector<int64_t>& values);
  static Numbers of(DType dtype, std::vector<int64_t> shape, const std::vector<double>& values);

  size_t elements() const { return bytes.size() / size_of(dtype); }
  // Of a float dtype whole numbers towards zero, as far as an i64 has them.
  std::vector<int64_t> integers() const;
  std::vector<double> reals() const;
};

constexpr bool is_float(DType t) { return t == DType::f32 || t == DType::f16 || t == DType::bf16; }

// "[2,3]"
std::string shape_text(const std::vector<int64_t>& shape);

// The product of the dims. Errors  bad_file: a dim is negative, there are more than kMostElements.
// unsupported: more than 8 axes.
Result<int64_t> elements_of(const std::vector<int64_t>& shape);

// The dtype with this number in ONNX. Errors  unsupported: Bowline has none like it; its name is in
// the message. bad_file: ONNX
// has no such number.
Result<DType> dtype_of(int32_t onnx);

// The numbers of a tensor; bytes in other files are read from `folder` alone. Errors  bad_file:
// shape and bytes disagree, a file
// lies outside the folder or is too short. unsupported: as dtype_of().
Result<Numbers> numbers_of(const file::TensorProto& tensor, const std::string& folder);

}  // namespace bowline::onnx
