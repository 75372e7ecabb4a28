// Settings of tokenizer_config.json that change a tokenizer.
#pragma once

#include <nlohmann/json.hpp>

#include "source/source.h"

namespace bowline::huggingface {

// Applies tokenizer_config.json to the tokenizer of `out`, as transformers does when it loads both
// files. Adds the special tokens and limits to the metadata. Without a tokenizer, only the metadata
// is set.
// Errors  unsupported: a key changes tokens and is not supported, or contradicts tokenizer.json;
//         the message names the key. bad_file.
Status apply_tokenizer_config(const nlohmann::json& config, import::Source& out);

// Lowercases each text before all other steps, as sentence-transformers does. Changes nothing if a
// step of the tokenizer lowercases already.
// Errors  unsupported: there is no tokenizer. bad_file.
Status lowercase_text(import::Source& out);

}  // namespace bowline::huggingface
