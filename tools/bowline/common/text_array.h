// Arrays as text. Each line or semicolon ends a row of the last axis. Spaces, tabs or commas
// separate the values.
#pragma once

#include <string>
#include <string_view>

#include "common/npy.h"

namespace bowline::command {

// The expected array. -1: the text determines the size.
struct TextShape {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
};

// Parses an array. f32 values are rounded to nearest; booleans are 0 and 1. The number of columns
// is the size of the last axis. The number of rows divided by the axes between determines the first
// axis. `where` is the start of messages ("x.txt", "--input tokens").
// Errors  bad_file: a value is invalid (with line and column), rows have different lengths, or they
//         do not fit the rank. bad_argument: the size of a middle axis is -1. unsupported: the
//         dtype is f16 or bf16.
Result<Array> parse_text_array(std::string_view text, const std::string& where,
                               const TextShape& shape);
Result<Array> read_text_array(const std::string& path, const TextShape& shape);

// Writes an array atomically, with enough digits to read back the same values. Errors  io_error.
Status write_text_array(const std::string& path, const Array& array);

// True if the path ends in ".txt".
bool is_text_path(std::string_view path);

}  // namespace bowline::command
