// Converts the merges of a BPE to scores of its tokens, and back. SentencePiece and the tokenizer
// kind "llama" of GGUF store scores: two tokens merge if their concatenation is a token, the one
// with the highest score first.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/description.h"

namespace bowline::command {

using Merge = std::pair<std::string, std::string>;

// The rows of a vocabulary. Special tokens and bytes are never merged.
struct Rows {
  std::vector<std::string> pieces;
  std::vector<text::TokenType> types;
};

struct Scores {
  std::vector<float> scores;  // per token
  std::string missing;        // why there are no scores; empty: there are
};
// Returns scores that determine the same merges in the same order. Fails if the merges of a token
// do not include every pair of tokens that spells it. Also fails if merges of other tokens are
// between them, unless all of these merges are in the order that transformers gives to equal
// scores.
Scores scores_of(const Rows& from, std::span<const Merge> merges);

// Returns the merges that follow from scores, in order. Merges with equal scores are in the order
// of transformers.
std::vector<Merge> merges_of(const Rows& from, std::span<const double> scores);

// True if a token continues after a space. Then the tokens of a word depend on its neighbours.
bool crosses_words(const Rows& rows);

}  // namespace bowline::command
