// Arrays as text: a row of the last axis per line, or before each semicolon; numbers with spaces,
// tabs or commas between them.
#pragma once

#include <string>
#include <string_view>

#include "common/npy.h"

namespace bowline::command {

// What the text is to be: -1 stands for a size that the text says.
struct TextShape {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
};

// Numbers of f32 are rounded to nearest; booleans are 0 and 1. Rows and columns say the last two
// axes, and what is left over the first
// one. `where` begins a message ("x.txt", "--input tokens"). Errors  bad_file: line and column; the
// rows differ, or are not that many.
// unsupported: f16 and bf16.
Result<Array> parse_text_array(std::string_view text, const std::string& where,
                               const TextShape& shape);
Result<Array> read_text_array(const std::string& path, const TextShape& shape);

// As many digits as give the same bits again. Whole or not at all. Errors  io_error.
Status write_text_array(const std::string& path, const Array& array);

// The name of a file ends in ".txt".
bool is_text_path(std::string_view path);

}  // namespace bowline::command
