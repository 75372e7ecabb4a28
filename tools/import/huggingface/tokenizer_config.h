// What tokenizer_config.json changes in a tokenizer.
#pragma once

#include <nlohmann/json.hpp>

#include "source/source.h"

namespace bowline::huggingface {

// Applies the settings of tokenizer_config.json to the tokenizer of `out`, as transformers does
// when it loads both files, and reads the special tokens and the limits into the metadata. Without
// a tokenizer it reads the metadata alone.
// Errors  unsupported: a key changes tokens and is not read, or contradicts tokenizer.json; the
//         message names it. bad_file.
Status apply_tokenizer_config(const nlohmann::json& config, import::Source& out);

// Lowercases each text before all other steps, as sentence-transformers does it, unless a step of
// the tokenizer lowercases.
// Errors  unsupported: there is no tokenizer. bad_file.
Status lowercase_text(import::Source& out);

}  // namespace bowline::huggingface
