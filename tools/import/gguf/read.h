// Reads a GGUF file into a Source, with the names and keys of Hugging Face.
#pragma once

#include <string>

#include "bowline.h"
#include "source/source.h"

namespace bowline::gguf {

// Reads a file. It stays memory-mapped while a tensor of the source is in use. Quantized tensors
// keep their blocks. Only a tensor that must be transposed or changed is dequantized to f32,
// because an f16 scale times a quantized value has more digits than f16 or bf16. Assets: tokenizer
// (a GGUF file with the tokenizer's keys), chat_template, config.json. Errors  io_error: the file
// cannot be read. bad_file: the message says what and where.
//         unsupported: an architecture or tensor type; the message lists the supported ones.
Result<import::Source> read(const std::string& path, const import::Progress& progress = {});

// Reads bytes in memory, which must outlive the source.
Result<import::Source> read(std::span<const std::byte> bytes, const std::string& path);

}  // namespace bowline::gguf
