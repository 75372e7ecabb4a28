// Reads Hugging Face folders: config.json, safetensors (single or sharded), the tokenizer, and the
// settings of sentence-transformers.
#pragma once

#include <string>

#include "source/source.h"

namespace bowline::huggingface {

// True if the path is a folder with config.json, or with modules.json of sentence-transformers.
bool is_folder(const std::string& path);

// Reads a folder with its tensors.
// Errors  bad_file: a required file is missing, truncated or inconsistent; the message says where.
//         unsupported: a setting is not supported; the message names it.
Result<import::Source> read(const std::string& folder, const import::Progress& progress = {});
// Reads a folder without its tensors, which may be missing. Errors  as read().
Result<import::Source> read_config(const std::string& folder);

}  // namespace bowline::huggingface
