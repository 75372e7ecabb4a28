// The content of a tokenizer file as data.
//
//   tokenizer.json  --describe_json()-->  Description  --build()-->  TokenizerData
//   GGUF            --describe_gguf()-->
//
// `bowline export` writes a Description in the format of the other file. A step is a struct with
// the type and the fields of tokenizer.json. fields() lists them: `field` has a default, `needed`
// has none.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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

// A step without fields.
#define BOWLINE_STEP(Name)                           \
  struct Name {                                      \
    static constexpr std::string_view kType = #Name; \
    static void fields(const auto&, auto&) {}        \
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
  static constexpr std::string_view kType = "ByteLevel";
  bool add_prefix_space = true;
  bool trim_offsets = true;
  bool use_regex = true;
  static void fields(auto& s, auto& f) {
    f.field("add_prefix_space", s.add_prefix_space);
    f.field("trim_offsets", s.trim_offsets);
    f.field("use_regex", s.use_regex);
  }
};

struct BertNormalizer {
  static constexpr std::string_view kType = "BertNormalizer";
  bool clean_text = true;
  bool handle_chinese_chars = true;
  std::optional<bool> strip_accents = {};  // empty: as `lowercase`
  bool lowercase = true;
  static void fields(auto& s, auto& f) {
    f.field("clean_text", s.clean_text);
    f.field("handle_chinese_chars", s.handle_chinese_chars);
    f.field("lowercase", s.lowercase);
    f.field("strip_accents", s.strip_accents);
  }
};

struct Strip {
  static constexpr std::string_view kType = "Strip";
  bool strip_left = false;
  bool strip_right = false;
  static void fields(auto& s, auto& f) {
    f.needed("strip_left", s.strip_left);
    f.needed("strip_right", s.strip_right);
  }
};

struct Prepend {
  static constexpr std::string_view kType = "Prepend";
  std::string prepend;
  static void fields(auto& s, auto& f) { f.needed("prepend", s.prepend); }
};

struct Replace {
  static constexpr std::string_view kType = "Replace";
  PatternText pattern;
  std::string content;
  static void fields(auto& s, auto& f) {
    f.needed("pattern", s.pattern);
    f.needed("content", s.content);
  }
};

struct Precompiled {
  static constexpr std::string_view kType = "Precompiled";
  Base64 precompiled_charsmap;
  static void fields(auto& s, auto& f) { f.needed("precompiled_charsmap", s.precompiled_charsmap); }
};

using Normalizer = std::variant<NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Nmt, ByteLevel,
                                BertNormalizer, Strip, Prepend, Replace, Precompiled>;

// ---- pre-tokenizers

BOWLINE_STEP(Whitespace);
BOWLINE_STEP(WhitespaceSplit);
BOWLINE_STEP(BertPreTokenizer);

struct Metaspace {
  static constexpr std::string_view kType = "Metaspace";
  Letter replacement{std::string(kSpaceMark)};
  text::Prepend prepend_scheme = text::Prepend::always;
  bool split = true;
  static void fields(auto& s, auto& f) {
    f.field("replacement", s.replacement);
    f.field("prepend_scheme", s.prepend_scheme);
    f.field("split", s.split);
  }
};

struct Punctuation {
  static constexpr std::string_view kType = "Punctuation";
  Matches behavior = Matches::isolated;
  static void fields(auto& s, auto& f) { f.field("behavior", s.behavior); }
};

struct Digits {
  static constexpr std::string_view kType = "Digits";
  bool individual_digits = false;
  static void fields(auto& s, auto& f) { f.field("individual_digits", s.individual_digits); }
};

struct CharDelimiterSplit {
  static constexpr std::string_view kType = "CharDelimiterSplit";
  Letter delimiter;
  static void fields(auto& s, auto& f) { f.needed("delimiter", s.delimiter); }
};

struct FixedLength {
  static constexpr std::string_view kType = "FixedLength";
  size_t length = 5;
  static void fields(auto& s, auto& f) { f.field("length", s.length); }
};

struct Split {
  static constexpr std::string_view kType = "Split";
  PatternText pattern;
  Matches behavior = Matches::isolated;
  bool invert = false;
  static void fields(auto& s, auto& f) {
    f.needed("pattern", s.pattern);
    f.needed("behavior", s.behavior);
    f.field("invert", s.invert);
  }
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
  static constexpr std::string_view kType = "WordPiece";
  std::string prefix = "##";
  bool cleanup = true;
  static void fields(auto& s, auto& f) {
    f.field("prefix", s.prefix);
    f.field("cleanup", s.cleanup);
  }
};

struct BPEDecoder {
  static constexpr std::string_view kType = "BPEDecoder";
  std::string suffix = "</w>";
  static void fields(auto& s, auto& f) { f.field("suffix", s.suffix); }
};

struct StripDecoder {
  static constexpr std::string_view kType = "Strip";
  Letter content;
  size_t start = 0;
  size_t stop = 0;
  static void fields(auto& s, auto& f) {
    f.needed("content", s.content);
    f.needed("start", s.start);
    f.needed("stop", s.stop);
  }
};

struct CTC {
  static constexpr std::string_view kType = "CTC";
  std::string pad_token = "<pad>";
  std::string word_delimiter_token = "|";
  bool cleanup = true;
  static void fields(auto& s, auto& f) {
    f.field("pad_token", s.pad_token);
    f.field("word_delimiter_token", s.word_delimiter_token);
    f.field("cleanup", s.cleanup);
  }
};

using Decoder = std::variant<ByteLevel, Fuse, ByteFallback, Metaspace, WordPieceDecoder, BPEDecoder,
                             Replace, StripDecoder, CTC>;

// ---- models

struct Bpe {
  static constexpr std::string_view kType = "BPE";
  bool byte_fallback = false;
  bool fuse_unk = false;
  bool ignore_merges = false;
  std::optional<std::string> unk_token = {};
  std::optional<std::string> continuing_subword_prefix = {};
  std::optional<std::string> end_of_word_suffix = {};
  static void fields(auto& s, auto& f) {
    f.field("byte_fallback", s.byte_fallback);
    f.field("fuse_unk", s.fuse_unk);
    f.field("ignore_merges", s.ignore_merges);
    f.field("unk_token", s.unk_token);
    f.field("continuing_subword_prefix", s.continuing_subword_prefix);
    f.field("end_of_word_suffix", s.end_of_word_suffix);
  }
};

struct WordPiece {
  static constexpr std::string_view kType = "WordPiece";
  std::string unk_token = "[UNK]";
  std::string continuing_subword_prefix = "##";
  size_t max_input_chars_per_word = 100;
  static void fields(auto& s, auto& f) {
    f.field("unk_token", s.unk_token);
    f.field("continuing_subword_prefix", s.continuing_subword_prefix);
    f.field("max_input_chars_per_word", s.max_input_chars_per_word);
  }
};

struct Unigram {
  static constexpr std::string_view kType = "Unigram";
  bool byte_fallback = false;
  std::optional<size_t> unk_id = {};
  static void fields(auto& s, auto& f) {
    f.field("byte_fallback", s.byte_fallback);
    f.field("unk_id", s.unk_id);
  }
};

struct WordLevel {
  static constexpr std::string_view kType = "WordLevel";
  std::string unk_token;
  static void fields(auto& s, auto& f) { f.field("unk_token", s.unk_token); }
};

using Model = std::variant<Bpe, WordPiece, Unigram, WordLevel>;

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
