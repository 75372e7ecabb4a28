// A folder of Hugging Face: config.json, safetensors in one file or in shards, the tokenizer, and
// what sentence-transformers adds.
#pragma once

#include <string>

#include "source/source.h"

namespace bowline::huggingface {

// Whether a path is a folder with a config.json, or with a modules.json of sentence-transformers.
bool is_folder(const std::string& path);

// Errors  bad_file: a file that is needed is missing, cut or contradicts itself; what and where.
//         unsupported: it asks for what is not
// read, by name.
Result<import::Source> read(const std::string& folder);
// The same without tensors, which need not be there. Errors  as read().
Result<import::Source> read_config(const std::string& folder);

}  // namespace bowline::huggingface
