// Tokenizer models: split a word into tokens of the vocabulary.
#pragma once

#include <functional>

#include "text/description.h"
#include "text/vocabulary.h"

namespace bowline::text {

// A token with its byte range in the word.
struct Token {
  int32_t id = 0;
  size_t begin = 0;
  size_t end = 0;
};

// Working memory of a call of encode().
struct Scratch {
  struct Symbol {
    int32_t id = 0;
    uint32_t begin = 0;
    uint32_t end = 0;
    int32_t before = -1;
    int32_t after = -1;
  };
  struct Merge {
    uint32_t rank = 0;
    int32_t at = 0;
    int32_t id = 0;
    bool operator>(const Merge& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
  };
  std::vector<Symbol> symbols;
  std::vector<Merge> queue;
  std::vector<uint32_t> ranks;
  std::string text;
};

// Appends the tokens of a word.
// Errors  bad_file: the vocabulary has no token for a part of the word, and no unknown token.
using TokenModel =
    std::function<Status(std::string_view word, Scratch& scratch, std::vector<Token>& out)>;

// A merge of two tokens to a third. The rank is the position in the file.
struct MergeRule {
  int32_t left = 0;
  int32_t right = 0;
  int32_t merged = 0;
  uint32_t rank = 0;
};

// Errors of the following functions  bad_file: the vocabulary lacks a token that the model names.

// Byte pair encoding. Merges neighbours until no merge applies: always the pair with the lowest
// rank, and of equal pairs the leftmost. `byte_level`: words are bytes, spelled as in byte_level.h.
//
// Source  Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units",
//         2016.
Result<TokenModel> make_bpe(const Vocabulary& vocabulary, const steps::Bpe& step, bool byte_level,
                            const std::vector<MergeRule>& rules);

// Longest match first: takes the longest token at the start of the word, then the longest
// continuation, and so on. If no token matches, the whole word becomes the unknown token.
Result<TokenModel> make_word_piece(const Vocabulary& vocabulary, const steps::WordPiece& step);

// Chooses the tokens with the largest sum of scores. `scores` by id; -INFINITY: the token is never
// chosen.
//
// Source  Kudo, "Subword Regularization", 2018; Viterbi.
Result<TokenModel> make_unigram(const Vocabulary& vocabulary, const steps::Unigram& step,
                                std::vector<double> scores);

// A word is a single token or unknown.
TokenModel make_word_level(const Vocabulary& vocabulary, const steps::WordLevel& step);

}  // namespace bowline::text
