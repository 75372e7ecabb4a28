// Reads the tokenizer of a GGUF file: only the metadata keys `tokenizer.*`, no tensors.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "base/escape.h"
#include "base/utf8.h"
#include "text/tokenizer_data.h"

namespace bowline::text {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read as little endian.");

constexpr uint64_t kMostKeys = 1 << 16;
constexpr int kMostArrays = 4;              // nested arrays
constexpr size_t kLongestMerged = 1 << 10;  // bytes of a merged token

enum Type : uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64,
  kTypes
};

// Size in bytes; 0 for types of variable size.
size_t size_of_type(uint32_t type) {
  constexpr size_t sizes[kTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < kTypes ? sizes[type] : 0;
}

// A value in the file.
struct MetadataValue {
  uint32_t type = 0;  // of the value, or of the elements of an array
  bool many = false;  // the value is an array
  uint64_t count = 1;
  std::string_view bytes;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  size_t at() const { return at_; }
  std::string_view from(size_t begin) const { return bytes_.substr(begin, at_ - begin); }

  Status skip(uint64_t n) {
    BOWLINE_REQUIRE_CODE(n <= bytes_.size() - at_, Code::bad_file,
                         "The file ends at byte {}, inside of {} bytes at byte {}.", bytes_.size(),
                         n, at_);
    at_ += n;
    return {};
  }
  template <class T>
  Result<T> number() {
    BOWLINE_TRY(skip(sizeof(T)));
    T out;
    std::memcpy(&out, bytes_.data() + at_ - sizeof(T), sizeof(T));
    return out;
  }
  Result<std::string_view> text() {
    BOWLINE_TRY_ASSIGN(const uint64_t n, number<uint64_t>());
    BOWLINE_TRY(skip(n));
    return bytes_.substr(at_ - n, n);
  }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};

Status skip_values(Reader& r, uint32_t type, uint64_t count, int depth) {
  BOWLINE_REQUIRE_CODE(type < kTypes && depth < kMostArrays, Code::bad_file,
                       "A value at byte {} has the invalid type {}.", r.at(), type);
  if (const size_t size = size_of_type(type)) {
    BOWLINE_REQUIRE_CODE(count <= UINT64_MAX / size, Code::bad_file, "An array has {} elements.",
                         count);
    return r.skip(count * size);
  }
  for (uint64_t i = 0; i < count; ++i) {  // each takes at least 8 bytes
    if (type == string) {
      BOWLINE_TRY(r.text().status());
      continue;
    }
    BOWLINE_TRY_ASSIGN(const uint32_t inner, r.number<uint32_t>());
    BOWLINE_TRY_ASSIGN(const uint64_t n, r.number<uint64_t>());
    BOWLINE_TRY(skip_values(r, inner, n, depth + 1));
  }
  return {};
}

using Values = std::map<std::string, MetadataValue, std::less<>>;

Result<Values> read_values(std::string_view bytes) {
  Reader r(bytes);
  BOWLINE_TRY_ASSIGN(const uint32_t magic, r.number<uint32_t>());
  BOWLINE_REQUIRE_CODE(magic == 0x46554747, Code::bad_file, "The tokenizer is not a GGUF file.");
  BOWLINE_TRY_ASSIGN(const uint32_t version, r.number<uint32_t>());
  BOWLINE_REQUIRE_CODE(version == 2 || version == 3, Code::unsupported,
                       "Version {} of GGUF is not supported. Supported: 2 and 3.", version);
  BOWLINE_TRY(r.skip(8));  // the number of tensors
  BOWLINE_TRY_ASSIGN(const uint64_t keys, r.number<uint64_t>());
  BOWLINE_REQUIRE_CODE(keys <= kMostKeys, Code::bad_file, "The file has {} keys, more than {}.",
                       keys, kMostKeys);
  Values out;
  for (uint64_t i = 0; i < keys; ++i) {
    BOWLINE_TRY_ASSIGN(const std::string_view key, r.text());
    MetadataValue v;
    BOWLINE_TRY_ASSIGN(v.type, r.number<uint32_t>());
    v.many = v.type == array;
    if (v.many) {
      BOWLINE_TRY_ASSIGN(v.type, r.number<uint32_t>());
      BOWLINE_TRY_ASSIGN(v.count, r.number<uint64_t>());
    }
    const size_t begin = r.at();
    BOWLINE_TRY(skip_values(r, v.type, v.count, 0));
    v.bytes = r.from(begin);
    if (key.starts_with("tokenizer.")) {
      BOWLINE_REQUIRE_CODE(out.emplace(key, v).second, Code::bad_file,
                           "The key \"{}\" occurs twice.", escaped(key.substr(0, 100)));
    }
  }
  return out;
}

const MetadataValue* find(const Values& values, std::string_view key, bool many) {
  const auto found = values.find(key);
  return found == values.end() || found->second.many != many ? nullptr : &found->second;
}

// Empty: the file has no number with this key.
std::optional<int64_t> number_of(const Values& values, std::string_view key) {
  const MetadataValue* v = find(values, key, false);
  const size_t size = v == nullptr ? 0 : size_of_type(v->type);
  if (size == 0 || v->type == f32 || v->type == f64) {
    return std::nullopt;
  }
  uint64_t out = 0;
  std::memcpy(&out, v->bytes.data(), size);
  const bool is_signed = v->type == i8 || v->type == i16 || v->type == i32;
  const auto shift = static_cast<int>(64 - 8 * size);
  return is_signed ? static_cast<int64_t>(out << shift) >> shift : static_cast<int64_t>(out);
}

bool flag_of(const Values& values, std::string_view key, bool otherwise) {
  const auto v = number_of(values, key);
  return v ? *v != 0 : otherwise;
}

std::string_view text_of(const Values& values, std::string_view key) {
  const MetadataValue* v = find(values, key, false);
  return v != nullptr && v->type == string ? v->bytes.substr(8) : std::string_view();
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t n = utf8_length(text);
    if (n == 0) {
      return false;
    }
    text.remove_prefix(n);
  }
  return true;
}

Result<std::vector<std::string_view>> texts_of(const Values& values, std::string_view key) {
  const MetadataValue* v = find(values, key, true);
  BOWLINE_REQUIRE_CODE(v != nullptr && v->type == string, Code::bad_file,
                       "The file has no list of texts \"{}\".", key);
  std::vector<std::string_view> out;
  out.reserve(v->count);  // at most an eighth of the bytes
  Reader r(v->bytes);
  for (uint64_t i = 0; i < v->count; ++i) {
    BOWLINE_TRY_ASSIGN(const std::string_view text, r.text());
    BOWLINE_REQUIRE_CODE(is_utf8(text), Code::bad_file, "Text {} of \"{}\" is not UTF-8.", i, key);
    out.push_back(text);
  }
  return out;
}

// Returns 4-byte numbers; empty if the key is missing. Errors  bad_file: their number is not
// `count`.
template <class T>
Result<std::vector<T>> numbers_of(const Values& values, std::string_view key, size_t count) {
  const MetadataValue* v = find(values, key, true);
  if (v == nullptr) {
    return std::vector<T>();
  }
  const bool fits = std::is_same_v<T, float> ? v->type == f32 : v->type == i32 || v->type == u32;
  BOWLINE_REQUIRE_CODE(fits && v->count == count, Code::bad_file,
                       "\"{}\" has {} values of type {}, but there are {} tokens.", key, v->count,
                       v->type, count);
  std::vector<T> out(count);
  if (count != 0) {  // an empty vector may have a null address
    std::memcpy(out.data(), v->bytes.data(), v->bytes.size());
  }
  return out;
}

enum TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// Data of all kinds.
struct File {
  Values values;
  std::vector<std::string_view> pieces;
  std::vector<int32_t> types;
  TokenType type(size_t id) const {
    return types.empty() ? kNormal : static_cast<TokenType>(types[id]);
  }
  // Returns an id of the vocabulary; -1: the key is missing. Errors  bad_file.
  Result<int32_t> id_of(std::string_view key) const {
    const auto id = number_of(values, key);
    if (!id) {
      return -1;
    }
    BOWLINE_REQUIRE_CODE(*id >= 0 && static_cast<uint64_t>(*id) < pieces.size(), Code::bad_file,
                         "\"{}\" is {}, which is out of range for {} tokens.", key, *id,
                         pieces.size());
    return static_cast<int32_t>(*id);
  }
};

Status add_pieces(const File& file, TokenizerData& data) {
  data.vocabulary.expect(file.pieces.size());
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    BOWLINE_TRY(data.vocabulary.add(file.pieces[id], static_cast<int64_t>(id)));
  }
  return {};
}

Status add_special(const File& file, TokenizerData& data) {
  std::vector<AddedToken> tokens;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const TokenType type = file.type(id);
    if (type == kControl || type == kUnknown || type == kUserDefined) {
      AddedToken token;
      token.content = data.vocabulary.piece(static_cast<int32_t>(id));
      token.id = static_cast<int32_t>(id);
      token.special = type != kUserDefined;
      tokens.push_back(std::move(token));
    }
  }
  return add_tokens(data, std::move(tokens));
}

Status surround(const File& file, TokenizerData& data, std::string_view first, bool adds_first,
                std::string_view last, bool adds_last) {
  PostProcessor::Surround around;
  if (flag_of(file.values, "tokenizer.ggml.add_bos_token", adds_first)) {
    BOWLINE_TRY_ASSIGN(const int32_t id, file.id_of(first));
    BOWLINE_REQUIRE_CODE(id >= 0, Code::bad_file,
                         "Each text starts with a token, but the file has no \"{}\".", first);
    around.before = {id};
  }
  if (flag_of(file.values, "tokenizer.ggml.add_eos_token", adds_last)) {
    BOWLINE_TRY_ASSIGN(const int32_t id, file.id_of(last));
    BOWLINE_REQUIRE_CODE(id >= 0, Code::bad_file,
                         "Each text ends with a token, but the file has no \"{}\".", last);
    around.behind = {id};
  }
  if (!around.before.empty() || !around.behind.empty()) {
    data.post_processors.push_back({std::move(around)});
  }
  return {};
}

constexpr std::string_view kBos = "tokenizer.ggml.bos_token_id";
constexpr std::string_view kEos = "tokenizer.ggml.eos_token_id";

// ---- byte-level BPE

struct Lists {
  std::string_view pre;   // "tokenizer.ggml.pre"
  size_t expression = 0;  // index in known_expressions()
  bool digits = false;    // each digit is a separate token
  bool ignore_merges = false;
  bool adds_bos = false;
  bool nfc = false;  // text is normalized to NFC first, which llama.cpp omits
};
constexpr Lists kWords[] = {{"gpt-2", 0},
                            {"gpt2", 0},
                            {"roberta-bpe", 0},
                            {"smollm", 0, true},
                            {"llama-bpe", 1, false, true, true},
                            {"llama3", 1, false, true, true},
                            {"qwen2", 2, false, false, false, true},
                            {"deepseek-r1-qwen", 2}};

Status read_byte_level(const File& file, TokenizerData& data) {
  const std::string_view pre = text_of(file.values, "tokenizer.ggml.pre");
  // llama.cpp warns and uses a pre-tokenizer that no model was trained with.
  BOWLINE_REQUIRE_CODE(
      !pre.empty(), Code::unsupported,
      "The file has no \"tokenizer.ggml.pre\", so the pre-tokenizer is unknown. Write a copy with "
      "the name, for example for Llama 3: gguf-new-metadata --pre-tokenizer llama-bpe OLD.gguf "
      "NEW.gguf (Python package gguf). Other names: \"gpt-2\", \"qwen2\", \"smollm\".");
  const auto words = std::ranges::find(kWords, pre, &Lists::pre);
  BOWLINE_REQUIRE_CODE(words != std::end(kWords), Code::unsupported,
                       "The pre-tokenizer \"{}\" of the file is not supported.",
                       escaped(pre.substr(0, 100)));
  if (words->nfc) {
    data.normalizers.push_back(normal_form(NormalForm::nfc));
  }
  if (words->digits) {
    data.pre_tokenizers.push_back(split(Pattern::of_class(is_number), Matches::isolated));
  }
  BOWLINE_TRY_ASSIGN(Pattern pattern,
                     Pattern::of_expression(known_expressions()[words->expression]));
  data.pre_tokenizers.push_back(split(std::move(pattern), Matches::isolated));
  BOWLINE_TRY(add_pieces(file, data));
  BOWLINE_TRY_ASSIGN(const std::vector<std::string_view> merges,
                     texts_of(file.values, "tokenizer.ggml.merges"));
  std::vector<Bpe::Rule> rules;
  rules.reserve(merges.size());
  for (const std::string_view merge : merges) {
    const size_t space = merge.find(' ', 1);
    const auto left = data.vocabulary.find(merge.substr(0, space));
    const auto right =
        data.vocabulary.find(space == std::string_view::npos ? "" : merge.substr(space + 1));
    std::string joined(merge);
    joined.erase(std::min(space, joined.size()), 1);
    const auto merged = data.vocabulary.find(joined);
    BOWLINE_REQUIRE_CODE(left && right && merged, Code::bad_file,
                         "Merge {} (\"{}\") names a token that is not in the vocabulary.",
                         rules.size(), escaped(merge.substr(0, 100)));
    rules.push_back({*left, *right, *merged, static_cast<uint32_t>(rules.size())});
  }
  Bpe::Options o;
  o.byte_level = true;
  o.ignore_merges = words->ignore_merges;
  BOWLINE_TRY_ASSIGN(data.model, Bpe::create(data.vocabulary, std::move(o), rules));
  data.kind = "byte-level BPE";
  data.decoders = {decode_bytes()};
  return surround(file, data, kBos, words->adds_bos, kEos, false);
}

// ---- BPE with byte fallback

// Derives the merges of a vocabulary with scores: two tokens merge if their concatenation is a
// token, the highest score first.
Result<std::vector<Bpe::Rule>> merges_of(const File& file, const Vocabulary& v,
                                         const std::vector<float>& scores) {
  const auto is_text = [&](int32_t id) {
    const TokenType type = file.type(static_cast<size_t>(id));
    return type == kNormal || type == kUserDefined || type == kUnused;
  };
  std::vector<float> order;
  for (const float score : scores) {
    BOWLINE_REQUIRE_CODE(std::isfinite(score), Code::bad_file, "A score is not finite.");
    order.push_back(score);
  }
  std::ranges::sort(order, std::greater<>());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  std::vector<Bpe::Rule> out;
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string_view piece = v.piece(id);
    if (!is_text(id) || piece.empty()) {
      continue;
    }
    BOWLINE_REQUIRE_CODE(piece.size() <= kLongestMerged, Code::bad_file,
                         "Token {} has {} bytes, more than {}.", id, piece.size(), kLongestMerged);
    const auto rank = static_cast<uint32_t>(
        std::ranges::lower_bound(order, scores[i], std::greater<>()) - order.begin());
    for (size_t cut = length_of(piece[0]); cut < piece.size(); cut += length_of(piece[cut])) {
      const auto left = v.find(piece.substr(0, cut));
      const auto right = left ? v.find(piece.substr(cut)) : std::nullopt;
      if (right && is_text(*left) && is_text(*right)) {
        out.push_back({*left, *right, id, rank});
      }
    }
  }
  return out;
}

Result<std::vector<float>> scores_of(const File& file) {
  BOWLINE_TRY_ASSIGN(std::vector<float> scores,
                     numbers_of<float>(file.values, "tokenizer.ggml.scores", file.pieces.size()));
  BOWLINE_REQUIRE_CODE(!scores.empty(), Code::bad_file,
                       "The file has no \"tokenizer.ggml.scores\".");
  return scores;
}

Status read_llama(const File& file, TokenizerData& data) {
  BOWLINE_TRY(add_pieces(file, data));
  BOWLINE_TRY_ASSIGN(const std::vector<float> scores, scores_of(file));
  BOWLINE_TRY_ASSIGN(const std::vector<Bpe::Rule> rules, merges_of(file, data.vocabulary, scores));
  Bpe::Options o;
  o.byte_fallback = true;
  o.fuse_unknown = true;
  BOWLINE_TRY_ASSIGN(const int32_t unknown, file.id_of("tokenizer.ggml.unknown_token_id"));
  o.unknown = unknown < 0 ? std::string() : std::string(data.vocabulary.piece(unknown));
  BOWLINE_TRY_ASSIGN(data.model, Bpe::create(data.vocabulary, std::move(o), rules));
  data.kind = "BPE";
  const std::string space = "\u2581";
  const bool prefix = flag_of(file.values, "tokenizer.ggml.add_space_prefix", true);
  if (prefix) {
    data.normalizers.push_back(prepend(space));
  }
  data.normalizers.push_back(replace(Pattern::of_text(" "), space));
  data.decoders = {decode_replace(Pattern::of_text(space), " "), decode_byte_fallback(),
                   decode_fuse()};
  if (prefix) {
    data.decoders.push_back(decode_strip(" ", 1, 0, true));
  }
  return surround(file, data, kBos, true, kEos, false);
}

// ---- Unigram

// Empty if the file has no character map.
Result<std::string_view> charsmap_of(const Values& values) {
  constexpr std::string_view kKey = "tokenizer.ggml.precompiled_charsmap";
  const MetadataValue* v = find(values, kKey, true);
  BOWLINE_REQUIRE_CODE(v == nullptr || v->type == u8 || v->type == i8, Code::bad_file,
                       "\"{}\" is not an array of bytes.", kKey);
  return v == nullptr ? std::string_view() : v->bytes;
}

// As SentencePiece: either one space between words and one at the start, or all spaces.
Status add_spaces(const File& file, TokenizerData& data) {
  const std::string space = "\u2581";
  if (flag_of(file.values, "tokenizer.ggml.remove_extra_whitespaces", false)) {
    BOWLINE_TRY_ASSIGN(Pattern spaces, Pattern::of_expression(" {2,}"));
    data.normalizers.push_back(strip(false, true));
    data.normalizers.push_back(replace(std::move(spaces), space));
    data.pre_tokenizers = {metaspace(space, Prepend::always)};
    data.decoders = {decode_metaspace(space, true)};
    return {};
  }
  const bool prefix = flag_of(file.values, "tokenizer.ggml.add_space_prefix", false);
  if (prefix) {
    data.normalizers.push_back(prepend(space));
  }
  data.normalizers.push_back(replace(Pattern::of_text(" "), space));
  data.decoders = {decode_metaspace(space, prefix)};
  return {};
}

Status read_unigram(const File& file, TokenizerData& data) {
  BOWLINE_TRY(add_pieces(file, data));
  BOWLINE_TRY_ASSIGN(const std::vector<float> scores, scores_of(file));
  std::vector<double> searched;
  size_t bytes = 0;
  for (size_t id = 0; id < scores.size(); ++id) {
    const bool is_byte = file.type(id) == kByte;  // also found by its spelling, as in `tokenizers`
    searched.push_back(is_byte || file.type(id) == kNormal ? scores[id] : -INFINITY);
    bytes += is_byte ? 1 : 0;
  }
  Unigram::Options o;
  o.byte_fallback = bytes > 0;
  BOWLINE_TRY_ASSIGN(o.unknown, file.id_of("tokenizer.ggml.unknown_token_id"));
  BOWLINE_TRY_ASSIGN(data.model, Unigram::create(data.vocabulary, std::move(searched), o));
  data.kind = "Unigram";
  BOWLINE_TRY_ASSIGN(const std::string_view charsmap, charsmap_of(file.values));
  if (!charsmap.empty()) {
    BOWLINE_TRY_ASSIGN(Normalizer map, precompiled(charsmap));
    data.normalizers.push_back(std::move(map));
  }
  BOWLINE_TRY(add_spaces(file, data));
  if (o.byte_fallback) {
    data.decoders.insert(data.decoders.begin(), decode_byte_fallback());
  }
  return surround(file, data, kBos, false, kEos, true);
}

// ---- WordPiece

// The file marks tokens that start a word; the vocabulary of BERT marks continuations.
Status read_bert(const File& file, TokenizerData& data) {
  constexpr std::string_view kWord = "\u2581";
  data.vocabulary.expect(file.pieces.size());
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const std::string_view piece = file.pieces[id];
    const bool special =
        file.type(id) != kNormal || (piece.starts_with('[') && piece.ends_with(']'));
    const std::string text = special                    ? std::string(piece)
                             : piece.starts_with(kWord) ? std::string(piece.substr(kWord.size()))
                                                        : "##" + std::string(piece);
    BOWLINE_TRY(data.vocabulary.add(text, static_cast<int64_t>(id)));
  }
  BOWLINE_TRY_ASSIGN(const int32_t unknown, file.id_of("tokenizer.ggml.unknown_token_id"));
  WordPiece::Options o;
  o.unknown = unknown < 0 ? o.unknown : std::string(data.vocabulary.piece(unknown));
  BOWLINE_TRY_ASSIGN(data.model, WordPiece::create(data.vocabulary, o));
  data.kind = "WordPiece";
  BertRules rules;
  rules.lowercase = flag_of(file.values, "tokenizer.ggml.normalizer.lowercase", true);
  rules.strip_accents =
      flag_of(file.values, "tokenizer.ggml.normalizer.strip_accents", rules.lowercase);
  data.normalizers = {bert(rules)};
  data.pre_tokenizers = {split(Pattern::of_class(is_white_space), Matches::removed),
                         split(Pattern::of_class(is_punctuation), Matches::isolated)};
  data.decoders = {decode_word_piece("##", true)};
  // sic: the format spells it so
  const bool cls = number_of(file.values, "tokenizer.ggml.cls_token_id").has_value();
  return surround(file, data, cls ? "tokenizer.ggml.cls_token_id" : kBos, true,
                  "tokenizer.ggml.seperator_token_id", true);
}

}  // namespace

Result<SharedData> read_gguf(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  File file;
  BOWLINE_TRY_ASSIGN(file.values, read_values(text));
  BOWLINE_TRY_ASSIGN(file.pieces, texts_of(file.values, "tokenizer.ggml.tokens"));
  BOWLINE_TRY_ASSIGN(file.types, numbers_of<int32_t>(file.values, "tokenizer.ggml.token_type",
                                                     file.pieces.size()));
  auto data = std::make_shared<TokenizerData>();
  const std::string_view model = text_of(file.values, "tokenizer.ggml.model");
  if (model == "gpt2") {
    BOWLINE_TRY(read_byte_level(file, *data));
  } else if (model == "llama") {
    BOWLINE_TRY(read_llama(file, *data));
  } else if (model == "t5") {
    BOWLINE_TRY(read_unigram(file, *data));
  } else if (model == "bert") {
    BOWLINE_TRY(read_bert(file, *data));
  } else {
    return Status(
        Code::unsupported,
        format(
            "The tokenizer \"{}\" of the file is not supported. Supported: gpt2, llama, t5, bert.",
            escaped(model.substr(0, 100))));
  }
  BOWLINE_TRY(add_special(file, *data));
  return SharedData(std::move(data));
}

}  // namespace bowline::text
