// A tokenizer as it is used: the steps in their order. tokenizer_json.cpp and tokenizer_gguf.cpp
// make it of files.
#pragma once

#include <variant>

#include "text/added_tokens.h"
#include "text/decoders.h"
#include "text/models.h"
#include "text/pre_tokenizer.h"

namespace bowline::text {

// What follows the model: trimmed offsets, or special tokens around the text.
struct PostProcessor {
  struct Trim {
    bool prefix_space = true;  // a space at the begin may be one that was added
  };
  // Ids in front of the text and behind it.
  struct Surround {
    std::vector<int32_t> before;
    std::vector<int32_t> behind;
    bool is_template = false;
  };
  std::variant<Trim, Surround> step;
};

struct TokenizerData {
  std::string_view kind;
  Vocabulary vocabulary;  // the added tokens, too
  AddedTokens added;
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  std::variant<Bytes, Bpe, WordPiece, Unigram, WordLevel> model;
  std::vector<PostProcessor> post_processors;
  std::vector<DecodeStepMaker> decoders;
};

using SharedData = std::shared_ptr<const TokenizerData>;

Result<SharedData> read_json(std::span<const std::byte> bytes);
Result<SharedData> read_gguf(std::span<const std::byte> bytes);

// What the readers share: adds the tokens to the vocabulary of the model, and makes AddedTokens of
// them. Errors  bad_file: one
// contradicts the vocabulary.
Status add_tokens(TokenizerData& data, std::vector<AddedToken> tokens);

}  // namespace bowline::text
