// A tokenizer that is ready to use. build() creates it from a Description.
#pragma once

#include "text/added_tokens.h"
#include "text/decoders.h"
#include "text/description.h"
#include "text/models.h"
#include "text/pre_tokenizer.h"

namespace bowline::text {

struct TokenizerData {
  std::string_view kind;
  Vocabulary vocabulary;  // includes the added tokens
  AddedTokens added;
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  TokenModel model;  // empty: the id of a token is its byte
  std::vector<steps::PostProcessor> post_processors;
  std::vector<DecodeStepMaker> decoders;
};

using SharedData = std::shared_ptr<const TokenizerData>;

// Errors  bad_file: the parts of the description contradict each other, or a pattern or a map of
//         characters is damaged. unsupported: the model does not support a combination of options.
Result<SharedData> build(const Description& description);

}  // namespace bowline::text
