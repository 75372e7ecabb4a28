// Tokenizer models: split a word into tokens of the vocabulary.
#pragma once

#include <array>
#include <optional>
#include <variant>

#include "text/pieces.h"
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

// Byte pair encoding. Merges neighbours until no merge applies: always the pair with the lowest
// rank, and of equal pairs the leftmost.
//
// Source  Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units",
//         2016.
class Bpe {
 public:
  struct Options {
    bool byte_level = false;     // words are bytes, spelled as in byte_level.h
    bool byte_fallback = false;  // text without a token becomes the tokens <0x00> to <0xFF>
    bool fuse_unknown = false;   // merges neighbouring unknown tokens
    bool ignore_merges = false;  // a word that is in the vocabulary is not split
    std::string unknown;         // the unknown token; empty: there is none
    std::string prefix;          // of tokens that do not start a word
    std::string suffix;          // of tokens that end a word
  };
  // A merge of two tokens to a third. The rank is the position in the file.
  struct Rule {
    int32_t left = 0;
    int32_t right = 0;
    int32_t merged = 0;
    uint32_t rank = 0;
  };
  // Errors  bad_file: the vocabulary lacks a token that the options name.
  static Result<Bpe> create(const Vocabulary& vocabulary, Options options,
                            const std::vector<Rule>& rules);

  // Errors  bad_file: the vocabulary has no token for a part of the word, and no unknown token.
  Status encode(std::string_view word, Scratch& scratch, std::vector<Token>& out) const;
  bool byte_level() const { return options_.byte_level; }

 private:
  Status encode_part(std::string_view word, bool first, bool last, size_t begin, Scratch& scratch,
                     std::vector<Token>& out) const;
  Status add_symbols(std::string_view word, bool first, bool last, Scratch& s) const;
  const PairTable::Entry* merge_of(const Scratch::Symbol& a, const Scratch::Symbol& b) const;
  void merge_short(Scratch& s) const;
  void merge_long(Scratch& s) const;
  void find_whole(const Vocabulary& v);

  Options options_;
  PairTable merges_;                  // (left, right) -> (rank, merged)
  TextTable initial_;                 // ids of code points, with prefix and suffix
  std::array<int32_t, 256> bytes_{};  // byte -> token for byte level or byte fallback; -1: none
  int32_t unknown_ = -1;
  TextTable whole_;         // words that become a single token
  std::string cut_before_;  // no merge crosses the start of this text, so words are cut there;
                            // empty: no such text
};

// Longest match first: takes the longest token at the start of the word, then the longest
// continuation, and so on. If no token matches, the whole word becomes the unknown token.
class WordPiece {
 public:
  struct Options {
    std::string unknown = "[UNK]";
    std::string prefix = "##";  // of tokens that do not start a word
    size_t longest = 100;       // maximum word length in code points
  };
  static Result<WordPiece> create(const Vocabulary& vocabulary, const Options& options);
  Status encode(std::string_view word, Scratch& scratch, std::vector<Token>& out) const;

 private:
  ByteTrie begins_;
  ByteTrie goes_on_;
  int32_t unknown_ = -1;
  Options options_;
};

// Chooses the tokens with the largest sum of scores.
//
// Source  Kudo, "Subword Regularization", 2018; Viterbi.
class Unigram {
 public:
  struct Options {
    int32_t unknown = -1;
    bool byte_fallback = false;
  };
  // `scores` by id; -INFINITY: the token is never chosen.
  static Result<Unigram> create(const Vocabulary& vocabulary, std::vector<double> scores,
                                const Options& options);
  Status encode(std::string_view word, Scratch& scratch, std::vector<Token>& out) const;

 private:
  Status add(std::string_view word, size_t begin, size_t end, int32_t id,
             std::vector<Token>& out) const;

  ByteTrie pieces_;
  TextTable ids_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  std::array<int32_t, 256> bytes_{};
  Options options_;
};

// A word is a single token or unknown.
class WordLevel {
 public:
  static Result<WordLevel> create(const Vocabulary& vocabulary, std::string_view unknown);
  Status encode(std::string_view word, Scratch& scratch, std::vector<Token>& out) const;

 private:
  TextTable words_;
  int32_t unknown_ = -1;
};

// One id per byte.
class Bytes {
 public:
  Status encode(std::string_view word, Scratch& scratch, std::vector<Token>& out) const;
};

}  // namespace bowline::text
