// Tokenizers that the command is given as a file, or in a model.
#pragma once

#include <string>

#include "bowline_text.h"

namespace bowline::command {

// Of a model file, a tokenizer.json, a folder with one, or a GGUF file. Errors  bad_file: it cannot
// be read or is none of these, a model
// has no tokenizer, or one of a kind that is not known.
Result<text::Tokenizer> open_tokenizer(const std::string& path);

// That of a model. Errors  bad_file: it has none, or one that is damaged or of a kind that is not
// known.
Result<text::Tokenizer> tokenizer_of(const Model& model);

// All of a file, or of standard input for "-".
Result<std::string> read_any(const std::string& path);

}  // namespace bowline::command
