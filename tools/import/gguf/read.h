// Reads a GGUF file as a source of models, in the terms of Hugging Face.
#pragma once

#include <string>

#include "bowline.h"
#include "source/source.h"

namespace bowline::gguf {

// The file stays mapped as long as a tensor of the source lives. Q8_0 and Q4_0 stay encoded; of
// other codes the numbers are given, in f32: those that the file says, as a product of a scale in
// f16 and a code has more digits than f16 or bf16 hold. Assets: tokenizer (a GGUF file of the
// tokenizer's keys), chat_template, config.json.
// Errors  io_error: it cannot be read. bad_file: what and where. unsupported: an architecture or a
//         type of numbers that is not read; those
// that are stand in the message.
Result<import::Source> read(const std::string& path);

// The same of bytes in memory, which outlive the source.
Result<import::Source> read(std::span<const std::byte> bytes, const std::string& path);

}  // namespace bowline::gguf
