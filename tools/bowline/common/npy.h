// Reads and writes arrays in NumPy's file format: versions 1 to 3, little endian, row-major.
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

// Creates an array of zeros. Errors  bad_argument: the size in bytes overflows.
Result<Array> make_array(DType dtype, std::span<const int64_t> shape);

// "[2,3]"
std::string shape_text(std::span<const int64_t> shape);

// Reads a file. NumPy has no bf16: its values are read and written as "<V2".
// Errors  bad_file: the file cannot be read or is damaged, or its dtype or order is not supported.
Result<Array> read_npy(const std::string& path);
// Writes a file of version 1.0 atomically. Errors  io_error.
Status write_npy(const std::string& path, const Array& array);

}  // namespace bowline::command
