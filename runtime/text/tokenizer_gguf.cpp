// Reads the tokenizer of a GGUF file: only the metadata keys `tokenizer.*`, no tensors.
#include <algorithm>
#include <cstring>

#include "base/escape.h"
#include "base/gguf.h"
#include "base/utf8.h"
#include "text/description.h"
#include "text/pattern.h"
#include "text/require.h"

namespace bowline::text {
namespace {

using gguf::Header;
using gguf::ValueType;

const gguf::Value* find(const Header& file, std::string_view key) {
  const gguf::Entry* const entry = file.find(key);
  return entry == nullptr ? nullptr : &entry->value;
}

// Empty: the file has no integer with this key.
std::optional<int64_t> number_of(const Header& file, std::string_view key) {
  const gguf::Value* const v = find(file, key);
  return v == nullptr || v->type == ValueType::array ? std::nullopt : v->integer();
}

bool flag_of(const Header& file, std::string_view key, bool otherwise) {
  const gguf::Value* const v = find(file, key);
  const auto flag = v == nullptr ? std::nullopt : v->boolean();
  return flag ? *flag : number_of(file, key).value_or(otherwise ? 1 : 0) != 0;
}

std::string_view text_of(const Header& file, std::string_view key) {
  const gguf::Value* const v = find(file, key);
  return v == nullptr ? std::string_view() : v->text().value_or(std::string_view());
}

// "tokenizer.ggml.NAME"
std::string key_of(std::string_view name) { return "tokenizer.ggml." + std::string(name); }

// Whether the value is an array with elements of a type.
bool is_array_of(const gguf::Value& v, ValueType item) {
  return v.type == ValueType::array && v.item == item;
}

Result<std::vector<std::string_view>> texts_of(const Header& file, std::string_view key) {
  const gguf::Value* const v = find(file, key);
  BOWLINE_REQUIRE_FILE(v != nullptr && is_array_of(*v, ValueType::text),
                       "The file has no list of texts \"{}\".", key);
  std::vector<std::string_view> out = v->texts();
  for (size_t i = 0; i < out.size(); ++i) {
    BOWLINE_REQUIRE_FILE(valid_utf8(out[i]), "Text {} of \"{}\" is not UTF-8.", i, key);
  }
  return out;
}

// Returns 4-byte numbers; empty if the key is missing. Errors  bad_file: their number is not
// `count`.
template <class T>
Result<std::vector<T>> numbers_of(const Header& file, std::string_view key, size_t count) {
  const gguf::Value* const v = find(file, key);
  if (v == nullptr) {
    return std::vector<T>();
  }
  const bool fits = std::is_same_v<T, float>
                        ? is_array_of(*v, ValueType::f32)
                        : is_array_of(*v, ValueType::i32) || is_array_of(*v, ValueType::u32);
  BOWLINE_REQUIRE_FILE(fits && v->count == count,
                       "\"{}\" has {} values of type {}, but there are {} tokens.", key, v->count,
                       static_cast<uint32_t>(v->item), count);
  std::vector<T> out(count);
  if (count != 0) {  // an empty vector may have a null address
    std::memcpy(out.data(), v->bytes.data(), v->bytes.size());
  }
  return out;
}

// Writes the parts of a description.
class Describing {
 public:
  explicit Describing(const Header& file) : file_(file) {}

  Result<Description> run() {
    BOWLINE_TRY_ASSIGN(const std::vector<std::string_view> pieces,
                       texts_of(file_, key_of("tokens")));
    for (const std::string_view piece : pieces) {
      out_.vocabulary.emplace_back(piece, std::ssize(out_.vocabulary));
    }
    BOWLINE_TRY_ASSIGN(const std::vector<int32_t> types,
                       numbers_of<int32_t>(file_, key_of("token_type"), pieces.size()));
    for (const int32_t type : types) {
      out_.types.push_back(static_cast<TokenType>(type));
    }
    BOWLINE_TRY(describe_model());
    add_special();
    return std::move(out_);
  }

 private:
  Status describe_model() {
    const std::string_view model = text_of(file_, key_of("model"));
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
    const std::string_view pre = text_of(file_, key_of("pre"));
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
                       texts_of(file_, key_of("merges")));
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
    if (flag_of(file_, key_of("add_space_prefix"), true)) {
      out_.normalizers.insert(out_.normalizers.begin(), steps::Prepend{space});
      out_.decoders->push_back(steps::StripDecoder{{" "}, 1, 0});
    }
    return surround("bos", true, false);
  }

  Status read_scores() {
    BOWLINE_TRY_ASSIGN(const std::vector<float> scores,
                       numbers_of<float>(file_, key_of("scores"), out_.vocabulary.size()));
    BOWLINE_REQUIRE_FILE(!scores.empty(), "The file has no \"tokenizer.ggml.scores\".");
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
    const gguf::Value* const map = find(file_, key);
    BOWLINE_REQUIRE_FILE(
        map == nullptr || is_array_of(*map, ValueType::u8) || is_array_of(*map, ValueType::i8),
        "\"{}\" is not an array of bytes.", key);
    if (map != nullptr && !map->bytes.empty()) {
      out_.normalizers.push_back(steps::Precompiled{
          {std::string(reinterpret_cast<const char*>(map->bytes.data()), map->bytes.size())}});
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
    const bool merges = flag_of(file_, key_of("remove_extra_whitespaces"), false);
    const bool prefix = merges || flag_of(file_, key_of("add_space_prefix"), false);
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
    normalizer.lowercase = flag_of(file_, key_of("normalizer.lowercase"), true);
    const bool strips = flag_of(file_, key_of("normalizer.strip_accents"), normalizer.lowercase);
    if (strips != normalizer.lowercase) {
      normalizer.strip_accents = strips;
    }
    out_.normalizers = {normalizer};
    out_.pre_tokenizers = {steps::BertPreTokenizer{}};
    out_.decoders = {steps::WordPieceDecoder{}};
    const bool cls = number_of(file_, key_of("cls_token_id")).has_value();
    return surround(cls ? "cls" : "bos", true, true, "seperator");  // sic: the format spells it so
  }

  // ---- parts of all kinds

  std::string piece(int32_t id) const {
    return id < 0 ? std::string() : out_.vocabulary[static_cast<size_t>(id)].first;
  }

  // Returns an id of the vocabulary; -1: the key is missing. Errors  bad_file.
  Result<int32_t> id_of(std::string_view name) const {
    const std::string key = key_of(name) + "_token_id";
    const int64_t id = number_of(file_, key).value_or(-1);
    BOWLINE_REQUIRE_FILE(
        !number_of(file_, key) || (id >= 0 && std::cmp_less(id, out_.vocabulary.size())),
        "\"{}\" is {}, which is out of range for {} tokens.", key, id, out_.vocabulary.size());
    return static_cast<int32_t>(id);
  }

  // `adds_first`, `adds_last`: whether a text gets the token if the file does not say so.
  Status surround(std::string_view first, bool adds_first, bool adds_last,
                  std::string_view last = "eos") {
    steps::Surround around;
    around.is_template = true;
    const auto add = [&](std::string_view flag, bool otherwise, std::string_view name,
                         std::string_view does, std::vector<int32_t>& to) -> Status {
      if (flag_of(file_, key_of(flag), otherwise)) {
        BOWLINE_TRY_ASSIGN(const int32_t id, id_of(name));
        BOWLINE_REQUIRE_FILE(id >= 0,
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

  const Header& file_;
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
  gguf::Reader in(bytes);
  BOWLINE_TRY_ASSIGN(const Header file, Header::read(in));
  return Describing(file).run();
}

}  // namespace bowline::text
