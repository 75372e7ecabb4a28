// The files of a tokenizer as transformers reads them, from the keys of GGUF.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "text/description.h"

namespace bowline::command {

struct TokenizerFiles {
  std::string tokenizer;  // tokenizer.json
  std::string config;     // tokenizer_config.json
};

// `gguf`: a file of GGUF, of which the tokenizer can be used (text::Tokenizer reads it). Its ids
// are those of the tokenizer that is
// written. Errors  unsupported: its kind is not known.
Result<TokenizerFiles> tokenizer_files(std::span<const std::byte> gguf);

// Steps as "normalizer" and "pre_tokenizer" of tokenizer.json. Equal steps have equal JSON.
nlohmann::json normalizer_json(const std::vector<text::steps::Normalizer>& steps);
nlohmann::json pre_tokenizer_json(const std::vector<text::steps::PreTokenizer>& steps);

}  // namespace bowline::command
