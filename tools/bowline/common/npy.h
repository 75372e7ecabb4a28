// Reads and writes arrays in NumPy's file format: versions 1 to 3, little endian, row-major.
//
// Source  "NEP 1 - A Simple File Format for NumPy Arrays" and numpy.lib.format.
#pragma once

#include <string>

#include "common/array.h"

namespace bowline::command {

// Reads a file. NumPy has no bf16: its values are read and written as "<V2".
// Errors  bad_file: the file cannot be read or is damaged, or its dtype or order is not supported.
Result<Array> read_npy(const std::string& path);
// Writes a file of version 1.0 atomically. Errors  io_error.
Status write_npy(const std::string& path, const Array& array);

}  // namespace bowline::command
