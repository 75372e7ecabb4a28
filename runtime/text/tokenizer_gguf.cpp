// Reads the tokenizer of a GGUF file: only the metadata keys `tokenizer.*`, no tensors.
#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "base/escape.h"
#include "base/status.h"
#include "base/utf8.h"
#include "text/description.h"
#include "text/pattern.h"

namespace bowline::text {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read as little endian.");

constexpr uint64_t kMostKeys = 1 << 16;
constexpr int kMostArrays = 4;  // nested arrays

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

// "tokenizer.ggml.NAME"
std::string key_of(std::string_view name) { return "tokenizer.ggml." + std::string(name); }

Result<std::vector<std::string_view>> texts_of(const Values& values, std::string_view key) {
  const MetadataValue* v = find(values, key, true);
  BOWLINE_REQUIRE_CODE(v != nullptr && v->type == string, Code::bad_file,
                       "The file has no list of texts \"{}\".", key);
  std::vector<std::string_view> out;
  out.reserve(v->count);  // at most an eighth of the bytes
  Reader r(v->bytes);
  for (uint64_t i = 0; i < v->count; ++i) {
    BOWLINE_TRY_ASSIGN(const std::string_view text, r.text());
    BOWLINE_REQUIRE_CODE(valid_utf8(text), Code::bad_file, "Text {} of \"{}\" is not UTF-8.", i,
                         key);
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

// Writes the parts of a description.
class Describing {
 public:
  explicit Describing(Values values) : values_(std::move(values)) {}

  Result<Description> run() {
    BOWLINE_TRY_ASSIGN(const std::vector<std::string_view> pieces,
                       texts_of(values_, key_of("tokens")));
    for (const std::string_view piece : pieces) {
      out_.vocabulary.emplace_back(piece, std::ssize(out_.vocabulary));
    }
    BOWLINE_TRY_ASSIGN(const std::vector<int32_t> types,
                       numbers_of<int32_t>(values_, key_of("token_type"), pieces.size()));
    for (const int32_t type : types) {
      out_.types.push_back(static_cast<TokenType>(type));
    }
    BOWLINE_TRY(describe_model());
    add_special();
    return std::move(out_);
  }

 private:
  Status describe_model() {
    const std::string_view model = text_of(values_, key_of("model"));
    if (model == "gpt2") {
      return describe_byte_level();
    }
    if (model == "llama") {
      return describe_llama();
    }
    if (model == "t5") {
      return describe_unigram();
    }
    BOWLINE_REQUIRE_CODE(
        model == "bert", Code::unsupported,
        "The tokenizer \"{}\" of the file is not supported. Supported: gpt2, llama, t5, bert.",
        escaped(model.substr(0, 100)));
    return describe_bert();
  }

  // ---- byte-level BPE

  Status describe_byte_level() {
    const std::string_view pre = text_of(values_, key_of("pre"));
    // llama.cpp warns and uses a pre-tokenizer that no model was trained with.
    BOWLINE_REQUIRE_CODE(
        !pre.empty(), Code::unsupported,
        "The file has no \"tokenizer.ggml.pre\", so the pre-tokenizer is unknown. Write a copy "
        "with "
        "the name, for example for Llama 3: gguf-new-metadata --pre-tokenizer llama-bpe OLD.gguf "
        "NEW.gguf (Python package gguf). Other names: \"gpt-2\", \"qwen2\", \"smollm\".");
    const std::vector<NamedSplit> known = named_splits();
    const auto named = std::ranges::find(known, pre, &NamedSplit::name);
    BOWLINE_REQUIRE_CODE(named != known.end(), Code::unsupported,
                         "The pre-tokenizer \"{}\" of the file is not supported.",
                         escaped(pre.substr(0, 100)));
    out_.normalizers = named->normalizers;
    out_.pre_tokenizers = named->pre_tokenizers;
    out_.decoders = {steps::ByteLevel{}};
    out_.model = steps::Bpe{.ignore_merges = named->ignore_merges};
    BOWLINE_TRY_ASSIGN(const std::vector<std::string_view> merges,
                       texts_of(values_, key_of("merges")));
    for (const std::string_view merge : merges) {
      const size_t space = std::min(merge.find(' ', 1), merge.size());
      out_.merges.emplace_back(merge.substr(0, space),
                               merge.substr(std::min(space + 1, merge.size())));
    }
    return surround("bos", named->adds_bos, false);
  }

  // ---- BPE with byte fallback

  Status describe_llama() {
    BOWLINE_TRY(read_scores());
    BOWLINE_TRY_ASSIGN(const int32_t unknown, id_of("unknown"));
    out_.model = steps::Bpe{.byte_fallback = true, .fuse_unk = true, .unk_token = piece(unknown)};
    const std::string space(kSpaceMark);
    out_.normalizers = {steps::Replace{{" "}, space}};
    out_.decoders = {steps::Replace{{space}, " "}, steps::ByteFallback{}, steps::Fuse{}};
    if (flag_of(values_, key_of("add_space_prefix"), true)) {
      out_.normalizers.insert(out_.normalizers.begin(), steps::Prepend{space});
      out_.decoders->push_back(steps::StripDecoder{{" "}, 1, 0});
    }
    return surround("bos", true, false);
  }

  Status read_scores() {
    BOWLINE_TRY_ASSIGN(const std::vector<float> scores,
                       numbers_of<float>(values_, key_of("scores"), out_.vocabulary.size()));
    BOWLINE_REQUIRE_CODE(!scores.empty(), Code::bad_file,
                         "The file has no \"tokenizer.ggml.scores\".");
    out_.scores.assign(scores.begin(), scores.end());
    return {};
  }

  // ---- Unigram

  Status describe_unigram() {
    BOWLINE_TRY(read_scores());
    steps::Unigram model;
    model.byte_fallback = std::ranges::find(out_.types, TokenType::byte) != out_.types.end();
    BOWLINE_TRY_ASSIGN(const int32_t unknown, id_of("unknown"));
    if (unknown >= 0) {
      model.unk_id = static_cast<size_t>(unknown);
    }
    const std::string key = key_of("precompiled_charsmap");
    const MetadataValue* const map = find(values_, key, true);
    BOWLINE_REQUIRE_CODE(map == nullptr || map->type == u8 || map->type == i8, Code::bad_file,
                         "\"{}\" is not an array of bytes.", key);
    if (map != nullptr && !map->bytes.empty()) {
      out_.normalizers.push_back(steps::Precompiled{{std::string(map->bytes)}});
    }
    add_spaces();
    if (model.byte_fallback) {
      out_.decoders->insert(out_.decoders->begin(), steps::ByteFallback{});
    }
    out_.model = model;
    return surround("bos", false, true);
  }

  // As SentencePiece: either one space between words and one at the start, or all spaces.
  void add_spaces() {
    const std::string space(kSpaceMark);
    const bool merges = flag_of(values_, key_of("remove_extra_whitespaces"), false);
    const bool prefix = merges || flag_of(values_, key_of("add_space_prefix"), false);
    steps::Metaspace metaspace;
    metaspace.prepend_scheme = prefix ? Prepend::always : Prepend::never;
    metaspace.split = false;
    out_.decoders = {metaspace};
    if (merges) {
      out_.normalizers.push_back(steps::Strip{.strip_right = true});
      out_.normalizers.push_back(steps::Replace{{" {2,}", true}, space});
      out_.pre_tokenizers = {metaspace};
      return;
    }
    if (prefix) {
      out_.normalizers.push_back(steps::Prepend{space});
    }
    out_.normalizers.push_back(steps::Replace{{" "}, space});
  }

  // ---- WordPiece

  // The file marks tokens that start a word; the vocabulary of BERT marks continuations.
  Status describe_bert() {
    for (auto& [piece, id] : out_.vocabulary) {
      const bool special = out_.type(static_cast<size_t>(id)) != TokenType::normal ||
                           (piece.starts_with('[') && piece.ends_with(']'));
      if (!special) {
        piece = piece.starts_with(kSpaceMark) ? piece.substr(kSpaceMark.size()) : "##" + piece;
      }
    }
    BOWLINE_TRY_ASSIGN(const int32_t unknown, id_of("unknown"));
    steps::WordPiece model;
    model.unk_token = unknown < 0 ? model.unk_token : piece(unknown);
    out_.model = model;
    steps::BertNormalizer normalizer;
    normalizer.lowercase = flag_of(values_, key_of("normalizer.lowercase"), true);
    const bool strips = flag_of(values_, key_of("normalizer.strip_accents"), normalizer.lowercase);
    if (strips != normalizer.lowercase) {
      normalizer.strip_accents = strips;
    }
    out_.normalizers = {normalizer};
    out_.pre_tokenizers = {steps::BertPreTokenizer{}};
    out_.decoders = {steps::WordPieceDecoder{}};
    const bool cls = number_of(values_, key_of("cls_token_id")).has_value();
    return surround(cls ? "cls" : "bos", true, true, "seperator");  // sic: the format spells it so
  }

  // ---- parts of all kinds

  std::string piece(int32_t id) const {
    return id < 0 ? std::string() : out_.vocabulary[static_cast<size_t>(id)].first;
  }

  // Returns an id of the vocabulary; -1: the key is missing. Errors  bad_file.
  Result<int32_t> id_of(std::string_view name) const {
    const std::string key = key_of(name) + "_token_id";
    const int64_t id = number_of(values_, key).value_or(-1);
    BOWLINE_REQUIRE_CODE(
        !number_of(values_, key) || (id >= 0 && std::cmp_less(id, out_.vocabulary.size())),
        Code::bad_file, "\"{}\" is {}, which is out of range for {} tokens.", key, id,
        out_.vocabulary.size());
    return static_cast<int32_t>(id);
  }

  // `adds_first`, `adds_last`: whether a text gets the token if the file does not say so.
  Status surround(std::string_view first, bool adds_first, bool adds_last,
                  std::string_view last = "eos") {
    steps::Surround around;
    around.is_template = true;
    const auto add = [&](std::string_view flag, bool otherwise, std::string_view name,
                         std::string_view does, std::vector<int32_t>& to) -> Status {
      if (flag_of(values_, key_of(flag), otherwise)) {
        BOWLINE_TRY_ASSIGN(const int32_t id, id_of(name));
        BOWLINE_REQUIRE_CODE(id >= 0, Code::bad_file,
                             "Each text {} with a token, but the file has no \"{}_token_id\".",
                             does, key_of(name));
        to = {id};
      }
      return {};
    };
    BOWLINE_TRY(add("add_bos_token", adds_first, first, "starts", around.before));
    BOWLINE_TRY(add("add_eos_token", adds_last, last, "ends", around.behind));
    if (!around.before.empty() || !around.behind.empty()) {
      out_.post_processors = {std::move(around)};
    }
    return {};
  }

  void add_special() {
    for (const auto& [piece, id] : out_.vocabulary) {
      const TokenType type = out_.type(static_cast<size_t>(id));
      if (type == TokenType::control || type == TokenType::unknown ||
          type == TokenType::user_defined) {
        AddedToken token;
        token.content = piece;
        token.id = static_cast<int32_t>(id);
        token.special = type != TokenType::user_defined;
        out_.added.push_back(std::move(token));
      }
    }
  }

  Values values_;
  Description out_;
};

}  // namespace

std::vector<NamedSplit> named_splits() {
  const std::vector<std::string_view> expressions = known_expressions();
  const steps::ByteLevel own{.add_prefix_space = false};
  const steps::ByteLevel bytes{.add_prefix_space = false, .use_regex = false};
  const auto by = [&](size_t expression) -> std::vector<steps::PreTokenizer> {
    return {steps::Split{{std::string(expressions[expression]), true}}, bytes};
  };
  return {{"gpt-2", {}, {own}},
          {"gpt2", {}, {own}},
          {"roberta-bpe", {}, {own}},
          {"smollm", {}, {steps::Digits{true}, own}},
          {"llama-bpe", {}, by(1), true, true},
          {"llama3", {}, by(1), true, true},
          {"qwen2", {steps::NFC{}}, by(2)},
          {"deepseek-r1-qwen", {}, by(2)}};
}

Result<Description> describe_gguf(std::span<const std::byte> bytes) {
  BOWLINE_TRY_ASSIGN(Values values,
                     read_values({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  return Describing(std::move(values)).run();
}

}  // namespace bowline::text
