// The content of a tokenizer file as data.
//
//   tokenizer.json  --describe_json()-->  Description  --build()-->  TokenizerData
//   GGUF            --describe_gguf()-->
//
// `bowline export` writes a Description in the format of the other file. A step is a struct with
// the type and the fields of tokenizer.json. fields() visits them: a `field` has a default, a
// `needed` field has none.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "bowline.h"

namespace bowline::text {

// Types of fields that are not bool, size_t or std::string.
struct Letter {  // one code point
  std::string text;
};
struct Base64 {
  std::string bytes;
};
struct PatternText {  // {"String": "..."} or {"Regex": "..."}
  std::string text;
  bool is_expression = false;
};
// The use of the matches of a splitting pattern.
enum class Matches : uint8_t {
  removed,
  isolated,
  merged_with_previous,
  merged_with_next,
  contiguous
};
inline constexpr std::array<std::string_view, 5> kMatches = {
    "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
enum class Prepend : uint8_t { never, first, always };
inline constexpr std::array<std::string_view, 3> kPrepend = {"never", "first", "always"};

// Stands for a space in tokens (U+2581).
inline constexpr std::string_view kSpaceMark = "\u2581";

namespace steps {

// Calls f.needed(name, member) for the first `needed` members, and f.field(name, member) for the
// others. `names`: the names of the members, as the preprocessor spells a list.
void visit_fields(std::string_view names, size_t needed, const auto& members, auto& f) {
  const auto visit = [&](auto& member) {
    const std::string_view name = names.substr(0, names.find(','));
    names.remove_prefix(std::min(name.size() + 2, names.size()));
    if (needed > 0) {
      f.needed(name, member);
      --needed;
    } else {
      f.field(name, member);
    }
  };
  std::apply([&](auto&... member) { (visit(member), ...); }, members);
}

// Declares the type of a step, and fields(step, f), which passes the listed members to f.
#define BOWLINE_FIELDS(type, needed, ...)                \
  static constexpr std::string_view kType = type;        \
  auto members() { return std::tie(__VA_ARGS__); }       \
  auto members() const { return std::tie(__VA_ARGS__); } \
  static void fields(auto& step, auto& f) { visit_fields(#__VA_ARGS__, needed, step.members(), f); }
// A step without fields.
#define BOWLINE_STEP(Name)   \
  struct Name {              \
    BOWLINE_FIELDS(#Name, 0) \
  }

// ---- normalizers

BOWLINE_STEP(NFC);
BOWLINE_STEP(NFD);
BOWLINE_STEP(NFKC);
BOWLINE_STEP(NFKD);
BOWLINE_STEP(Lowercase);
BOWLINE_STEP(StripAccents);
BOWLINE_STEP(Nmt);

// Member of all four groups of steps. Each group uses only some of the fields.
struct ByteLevel {
  bool add_prefix_space = true;
  bool trim_offsets = true;
  bool use_regex = true;
  BOWLINE_FIELDS("ByteLevel", 0, add_prefix_space, trim_offsets, use_regex)
};

struct BertNormalizer {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  std::optional<bool> strip_accents = {};  // empty: as `lowercase`
  bool lowercase = true;
  BOWLINE_FIELDS("BertNormalizer", 0, clean_text, handle_chinese_chars, lowercase, strip_accents)
};

struct Strip {
  bool strip_left = false;
  bool strip_right = false;
  BOWLINE_FIELDS("Strip", 2, strip_left, strip_right)
};

struct Prepend {
  std::string prepend;
  BOWLINE_FIELDS("Prepend", 1, prepend)
};

struct Replace {
  PatternText pattern;
  std::string content;
  BOWLINE_FIELDS("Replace", 2, pattern, content)
};

struct Precompiled {
  Base64 precompiled_charsmap;
  BOWLINE_FIELDS("Precompiled", 1, precompiled_charsmap)
};

using Normalizer = std::variant<NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Nmt, ByteLevel,
                                BertNormalizer, Strip, Prepend, Replace, Precompiled>;

// ---- pre-tokenizers

BOWLINE_STEP(Whitespace);
BOWLINE_STEP(WhitespaceSplit);
BOWLINE_STEP(BertPreTokenizer);

struct Metaspace {
  Letter replacement{std::string(kSpaceMark)};
  text::Prepend prepend_scheme = text::Prepend::always;
  bool split = true;
  BOWLINE_FIELDS("Metaspace", 0, replacement, prepend_scheme, split)
};

struct Punctuation {
  Matches behavior = Matches::isolated;
  BOWLINE_FIELDS("Punctuation", 0, behavior)
};

struct Digits {
  bool individual_digits = false;
  BOWLINE_FIELDS("Digits", 0, individual_digits)
};

struct CharDelimiterSplit {
  Letter delimiter;
  BOWLINE_FIELDS("CharDelimiterSplit", 1, delimiter)
};

struct FixedLength {
  size_t length = 5;
  BOWLINE_FIELDS("FixedLength", 0, length)
};

struct Split {
  PatternText pattern;
  Matches behavior = Matches::isolated;
  bool invert = false;
  BOWLINE_FIELDS("Split", 2, pattern, behavior, invert)
};

using PreTokenizer =
    std::variant<ByteLevel, Metaspace, Whitespace, WhitespaceSplit, BertPreTokenizer, Punctuation,
                 Digits, CharDelimiterSplit, FixedLength, Split>;

// ---- post-processors

// Ids before and after the text: TemplateProcessing, BertProcessing and RobertaProcessing.
struct Surround {
  std::vector<int32_t> before;
  std::vector<int32_t> behind;
  bool is_template = false;
};

// RobertaProcessing becomes one of each.
using PostProcessor = std::variant<ByteLevel, Surround>;

// ---- decoders

BOWLINE_STEP(Fuse);
BOWLINE_STEP(ByteFallback);
#undef BOWLINE_STEP

struct WordPieceDecoder {
  std::string prefix = "##";
  bool cleanup = true;
  BOWLINE_FIELDS("WordPiece", 0, prefix, cleanup)
};

struct BPEDecoder {
  std::string suffix = "</w>";
  BOWLINE_FIELDS("BPEDecoder", 0, suffix)
};

struct StripDecoder {
  Letter content;
  size_t start = 0;
  size_t stop = 0;
  BOWLINE_FIELDS("Strip", 3, content, start, stop)
};

struct CTC {
  std::string pad_token = "<pad>";
  std::string word_delimiter_token = "|";
  bool cleanup = true;
  BOWLINE_FIELDS("CTC", 0, pad_token, word_delimiter_token, cleanup)
};

using Decoder = std::variant<ByteLevel, Fuse, ByteFallback, Metaspace, WordPieceDecoder, BPEDecoder,
                             Replace, StripDecoder, CTC>;

// ---- models

struct Bpe {
  bool byte_fallback = false;
  bool fuse_unk = false;
  bool ignore_merges = false;
  std::optional<std::string> unk_token = {};
  std::optional<std::string> continuing_subword_prefix = {};
  std::optional<std::string> end_of_word_suffix = {};
  BOWLINE_FIELDS("BPE", 0, byte_fallback, fuse_unk, ignore_merges, unk_token,
                 continuing_subword_prefix, end_of_word_suffix)
};

struct WordPiece {
  std::string unk_token = "[UNK]";
  std::string continuing_subword_prefix = "##";
  size_t max_input_chars_per_word = 100;
  BOWLINE_FIELDS("WordPiece", 0, unk_token, continuing_subword_prefix, max_input_chars_per_word)
};

struct Unigram {
  bool byte_fallback = false;
  std::optional<size_t> unk_id = {};
  BOWLINE_FIELDS("Unigram", 0, byte_fallback, unk_id)
};

struct WordLevel {
  std::string unk_token;
  BOWLINE_FIELDS("WordLevel", 0, unk_token)
};

using Model = std::variant<Bpe, WordPiece, Unigram, WordLevel>;
#undef BOWLINE_FIELDS

}  // namespace steps

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
  bool single_word = false;  // not inside a word
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it
  bool normalized = false;   // is normalized itself and found in the normalized text
};

// The type of a token, with the numbers of GGUF (tokenizer.ggml.token_type).
enum class TokenType : int32_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};
// True if the token can be a part or the result of a merge.
constexpr bool takes_part(TokenType type) {
  return type == TokenType::normal || type == TokenType::user_defined || type == TokenType::unused;
}

// The views point into the bytes that were read, or into `file`.
struct Description {
  std::shared_ptr<const void> file;
  std::vector<steps::Normalizer> normalizers;
  std::vector<steps::PreTokenizer> pre_tokenizers;
  std::vector<steps::PostProcessor> post_processors;
  // Empty: tokens are joined by spaces.
  std::optional<std::vector<steps::Decoder>> decoders;
  steps::Model model;
  std::vector<std::pair<std::string, int64_t>> vocabulary;
  // (optional) Per entry of the vocabulary. A BPE with scores has no `merges`: the scores determine
  // them.
  std::vector<double> scores;
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  std::vector<AddedToken> added;
  std::vector<TokenType> types;  // per entry of the vocabulary; empty: all are normal

  TokenType type(size_t entry) const { return types.empty() ? TokenType::normal : types[entry]; }
};

// Errors  bad_file: the file is damaged. unsupported: the file has a step that is not supported.
Result<Description> describe_json(std::span<const std::byte> bytes);
Result<Description> describe_gguf(std::span<const std::byte> bytes);

// The normalizers and pre-tokenizers of a byte-level BPE that a name in GGUF stands for
// (tokenizer.ggml.pre).
struct NamedSplit {
  std::string_view name;
  std::vector<steps::Normalizer> normalizers;
  std::vector<steps::PreTokenizer> pre_tokenizers;
  bool ignore_merges = false;
  bool adds_bos = false;  // unless the file says otherwise
};
// If several names have equal steps, writers use the first name.
std::vector<NamedSplit> named_splits();

}  // namespace bowline::text
