// Arrays in NumPy's file format, versions 1 to 3, little endian and in C order.
//
// Source  "NEP 1 - A Simple File Format for NumPy Arrays" and numpy.lib.format.
#pragma once

#include <string>
#include <vector>

#include "bowline.h"

namespace bowline::command {

// A tensor that owns its bytes.
struct Array {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  Tensor tensor(std::string_view name) { return {name, dtype, shape, bytes.data()}; }
};

// Zeros. Errors  bad_argument: it has too many bytes to be counted.
Result<Array> make_array(DType dtype, std::span<const int64_t> shape);

// "[2,3]"
std::string shape_text(std::span<const int64_t> shape);

// bf16, which NumPy has not, is read and written as "<V2".
// Errors  bad_file: it cannot be read, is damaged, or is of another dtype or order.
Result<Array> read_npy(const std::string& path);
// Version 1.0, whole or not at all. Errors  io_error.
Status write_npy(const std::string& path, const Array& array);

}  // namespace bowline::command
