// Tensor types of GGUF: rows of blocks. A block never crosses the end of a row.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bowline.h"

namespace bowline::gguf {

struct TensorType {
  uint32_t number = 0;
  std::string_view name;      // "Q4_K"
  uint32_t block = 1;         // elements per block
  uint32_t bytes = 0;         // bytes per block
  DType dtype = DType::f32;   // dtype of the decoded values
  std::string_view encoding;  // the Bowline encoding with equal bytes
  void (*decode)(const std::byte* block, float* to) = nullptr;
  uint32_t file_type = 0;  // the general.file_type of a file of this type
};

// Null if the type is not supported.
const TensorType* find_tensor_type(uint32_t number);
// Null if no type has this name.
const TensorType* find_tensor_type(std::string_view name);
// The type of a block format: "q4_k". Null if there is no such format.
const TensorType* find_type_of_encoding(std::string_view encoding);
// "Q3_K"; also for types that are not supported.
std::string tensor_type_name(uint32_t number);
// The supported types: "F32, F16, ...".
std::string known_tensor_types();

}  // namespace bowline::gguf
