// Names of the special tokens in tokenizer_config.json and GGUF.
#pragma once

#include <string_view>

namespace bowline::import {

struct SpecialToken {
  const char* name;            // in tokenizer_config.json, in chat templates and in the metadata
  std::string_view gguf_part;  // "tokenizer.ggml.<part>_token_id"
};
// Source  transformers, tokenization_utils_base.py (SPECIAL_TOKENS_ATTRIBUTES); gguf, constants.py
//         (Keys.Tokenizer), which spells "seperator".
inline constexpr SpecialToken kSpecialTokens[] = {
    {"bos_token", "bos"},     {"eos_token", "eos"},       {"unk_token", "unknown"},
    {"pad_token", "padding"}, {"sep_token", "seperator"}, {"cls_token", "cls"},
    {"mask_token", "mask"},
};

}  // namespace bowline::import
