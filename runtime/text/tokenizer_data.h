// The steps of a tokenizer, in order. tokenizer_json.cpp and tokenizer_gguf.cpp create them.
#pragma once

#include <variant>

#include "text/added_tokens.h"
#include "text/decoders.h"
#include "text/models.h"
#include "text/pre_tokenizer.h"

namespace bowline::text {

// A step after the model: trims offsets, or adds special tokens.
struct PostProcessor {
  struct Trim {
    bool prefix_space = true;  // a leading space may be an added space
  };
  // Ids before and after the text.
  struct Surround {
    std::vector<int32_t> before;
    std::vector<int32_t> behind;
    bool is_template = false;
  };
  std::variant<Trim, Surround> step;
};

struct TokenizerData {
  std::string_view kind;
  Vocabulary vocabulary;  // includes the added tokens
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

// Adds the tokens to the vocabulary of the model and creates AddedTokens. Used by both readers.
// Errors  bad_file: a token contradicts the vocabulary.
Status add_tokens(TokenizerData& data, std::vector<AddedToken> tokens);

}  // namespace bowline::text
