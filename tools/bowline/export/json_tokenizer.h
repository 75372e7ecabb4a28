// Converts a GGUF tokenizer to the tokenizer files of transformers.
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

// `gguf`: a GGUF file with a tokenizer that text::Tokenizer can read. The ids stay the same.
// Errors  unsupported: the kind of the tokenizer is unknown.
Result<TokenizerFiles> tokenizer_files(std::span<const std::byte> gguf);

// Returns "normalizer" and "pre_tokenizer" of tokenizer.json. Equal steps have equal JSON.
nlohmann::json normalizer_json(const std::vector<text::steps::Normalizer>& steps);
nlohmann::json pre_tokenizer_json(const std::vector<text::steps::PreTokenizer>& steps);

}  // namespace bowline::command
