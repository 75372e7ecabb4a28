// How GGUF stores numbers: rows of blocks, which never cross the end of a row.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bowline.h"

namespace bowline::gguf {

struct TensorType {
  uint32_t number = 0;
  std::string_view name;      // "Q4_K"
  uint32_t block = 1;         // elements
  uint32_t bytes = 0;         // of a block
  DType dtype = DType::f32;   // that it stands for
  std::string_view encoding;  // of Bowline, whose bytes are equal; empty: it has none
  void (*decode)(const std::byte* block, float* to) = nullptr;
};

constexpr uint32_t kMostBlock = 256;

// Null: numbers of this type are not read.
const TensorType* find_tensor_type(uint32_t number);
// Null: there is none of this name.
const TensorType* find_tensor_type(std::string_view name);
// "Q3_K", also of types that are not read.
std::string tensor_type_name(uint32_t number);
// "F32, F16, ...": those that are read.
std::string known_tensor_types();

}  // namespace bowline::gguf
