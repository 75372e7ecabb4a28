// Opens tokenizers of files and models.
#pragma once

#include <string>

#include "bowline_text.h"

namespace bowline::command {

// Opens the tokenizer of a model file, a tokenizer.json, a folder with a tokenizer.json, or a GGUF
// file.
// Errors  bad_file: the file cannot be read or has another format, or a model has no tokenizer or
//         an unknown kind.
Result<text::Tokenizer> open_tokenizer(const std::string& path);

// Returns the tokenizer of a model.
// Errors  bad_file: the model has no tokenizer, or it is damaged or of an unknown kind.
Result<text::Tokenizer> tokenizer_of(const Model& model);

// Reads a whole file, or standard input if the path is "-".
Result<std::string> read_any(const std::string& path);

}  // namespace bowline::command
