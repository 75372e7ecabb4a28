// The models: how a word becomes pieces of the vocabulary.
#pragma once

#include <array>
#include <optional>
#include <variant>

#include "text/pieces.h"
#include "text/vocabulary.h"

namespace bowline::text {

// A piece of a word, by bytes of the word.
struct Token {
  int32_t id = 0;
  size_t begin = 0;
  size_t end = 0;
};

// What a call of encode() works in.
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

// Byte pair encoding: of the neighbours that the file has a merge for, the pair with the first
// merge becomes one, the leftmost of equals first, until there is none.
//
// Source  Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units",
//         2016.
class Bpe {
 public:
  struct Options {
    bool byte_level =
        false;  // words are bytes, which the vocabulary spells as letters (byte_level.h)
    bool byte_fallback = false;  // what has no piece becomes pieces <0x00> to <0xFF>
    bool fuse_unknown = false;   // neighbours without a piece are one
    bool ignore_merges = false;  // a word that is a piece stays whole
    std::string unknown;         // the piece of what has none; empty: there is none
    std::string prefix;          // of pieces that do not begin a word
    std::string suffix;          // of pieces that end a word
  };
  // A merge of two pieces into a third, of the rank of their order in the file.
  struct Rule {
    int32_t left = 0;
    int32_t right = 0;
    int32_t merged = 0;
    uint32_t rank = 0;
  };
  // Errors  bad_file: the vocabulary lacks a piece that the options name.
  static Result<Bpe> create(const Vocabulary& vocabulary, Options options,
                            const std::vector<Rule>& rules);

  // Errors  bad_file: the vocabulary has no piece for a part of the word, and none for unknown
  //         ones.
  Status encode(std::string_view word, Scratch& scratch, std::vector<Token>& out) const;
  bool byte_level() const { return options_.byte_level; }

 private:
  Status encode_part(std::string_view word, bool first, bool last, size_t begin, Scratch& scratch,
                     std::vector<Token>& out) const;
  Status add_symbols(std::string_view word, bool first, bool last, Scratch& s) const;
  void merge_short(Scratch& s) const;
  void merge_long(Scratch& s) const;
  void find_whole(const Vocabulary& v);

  Options options_;
  PairTable merges_;   // (left, right) -> (rank, merged)
  TextTable initial_;  // code points as the vocabulary has them, with prefix and suffix
  std::array<int32_t, 256> bytes_{};  // byte level or byte fallback: the piece of a byte; -1: none
  int32_t unknown_ = -1;
  TextTable whole_;         // words that become one piece
  std::string cut_before_;  // no merge joins what ends otherwise with what begins so; empty: none
};

// The longest piece that begins a word, then the longest that goes on, and so forth; the piece for
// unknown ones where there is none.
class WordPiece {
 public:
  struct Options {
    std::string unknown = "[UNK]";
    std::string prefix = "##";  // of pieces that do not begin a word
    size_t longest = 100;       // code points of a word
  };
  static Result<WordPiece> create(const Vocabulary& vocabulary, const Options& options);
  Status encode(std::string_view word, Scratch& scratch, std::vector<Token>& out) const;

 private:
  ByteTrie begins_;
  ByteTrie goes_on_;
  int32_t unknown_ = -1;
  Options options_;
};

// The pieces whose scores have the largest sum.
//
// Source  Kudo, "Subword Regularization", 2018; Viterbi.
class Unigram {
 public:
  struct Options {
    int32_t unknown = -1;
    bool byte_fallback = false;
  };
  // `scores` by id; -INFINITY: the piece is not looked for in text.
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

// A word is a piece or unknown.
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
