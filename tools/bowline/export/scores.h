// Merges of a BPE as scores of its pieces, which is how SentencePiece and the kind "llama" of GGUF
// say them, and back: two pieces make a third wherever it is a piece, that of the highest score
// first.
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

// The rows of a vocabulary. Special tokens and bytes take part in no merge.
struct Rows {
  std::vector<std::string> pieces;
  std::vector<text::TokenType> types;
};

struct Scores {
  std::vector<float> scores;  // one for each piece
  std::string missing;        // why there are none; empty: there are
};
// Scores of which the merges follow, in their order. There are none where a piece is not made of
// any two that it can be cut into, or where others come between its merges, unless all are in the
// order of merges of one score.
Scores scores_of(const Rows& from, std::span<const Merge> merges);

// The merges that follow from scores, first to last; of one score, as transformers orders them.
std::vector<Merge> merges_of(const Rows& from, std::span<const double> scores);

// A token of the text continues behind a space, so that words have other tokens in a text than
// alone.
bool crosses_words(const Rows& rows);

}  // namespace bowline::command
