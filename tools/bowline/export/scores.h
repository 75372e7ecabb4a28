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

namespace bowline::command {

using Merge = std::pair<std::string, std::string>;

// What takes part in merges: all but special tokens and bytes.
struct ScoredPieces {
  std::vector<std::string> pieces;
  std::vector<bool> is_text;
};

struct Scores {
  std::vector<float> scores;  // one for each piece
  std::string missing;        // why there are none; empty: there are
};
// Scores of which the merges follow, in their order. There are none where a piece is not made of
// any two that it can be cut into, or where others come between its merges, unless all are in the
// order of merges of one score.
Scores scores_of(const ScoredPieces& from, std::span<const Merge> merges);

// The merges that follow from scores, first to last; of one score, as transformers orders them.
std::vector<Merge> merges_of(const ScoredPieces& from, std::span<const float> scores);

}  // namespace bowline::command
