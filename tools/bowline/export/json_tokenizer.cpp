#include "export/json_tokenizer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/escape.h"
#include "base/status.h"
#include "export/base64.h"
#include "export/scores.h"
#include "export/splitting.h"
#include "export/token_type.h"
#include "gguf/file.h"
#include "source/special_tokens.h"

namespace bowline::command {
namespace {

using nlohmann::json;

json step(std::string_view type) { return {{"type", type}}; }

json replace(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

json sequence(const char* list, json steps) {
  return {{"type", "Sequence"}, {list, std::move(steps)}};
}

class Converter {
 public:
  explicit Converter(const gguf::File& file) : file_(file), pieces_(texts("tokens")) {
    for (size_t id = 0; id < pieces_.size(); ++id) {
      const gguf::Entry* const types = find("token_type");
      const auto type = types == nullptr ? std::nullopt : types->value.integer(id);
      types_.push_back(type ? static_cast<TokenType>(*type) : TokenType::normal);
    }
  }

  Result<TokenizerFiles> run() {
    const std::string kind = text("model");
    if (kind == "gpt2") {
      BOWLINE_TRY(add_byte_level());
    } else if (kind == "llama") {
      add_scored();
    } else if (kind == "t5") {
      add_unigram();
    } else {
      BOWLINE_REQUIRE_CODE(kind == "bert", Code::unsupported, "Its kind is {}, which is not known.",
                           listed_name(kind));
      add_words();
    }
    out_["model"]["vocab"] = kind == "t5" ? scored_vocabulary() : vocabulary();
    out_["added_tokens"] = added_tokens();
    return TokenizerFiles{out_.dump() + "\n", config().dump(2) + "\n"};
  }

 private:
  const gguf::Entry* find(std::string_view key) const {
    return file_.find(fmt::format("tokenizer.ggml.{}", key));
  }
  std::string text(std::string_view key) const {
    const gguf::Entry* const entry = find(key);
    return entry == nullptr ? "" : std::string(entry->value.text().value_or(""));
  }
  std::vector<std::string> texts(std::string_view key) const {
    const gguf::Entry* const entry = find(key);
    const auto out = entry == nullptr ? std::vector<std::string_view>() : entry->value.texts();
    return {out.begin(), out.end()};
  }
  std::string bytes(std::string_view key) const {
    const gguf::Entry* const entry = find(key);
    std::string out;
    for (uint64_t i = 0; entry != nullptr && i < entry->value.count; ++i) {
      out += static_cast<char>(entry->value.integer(i).value_or(0));
    }
    return out;
  }
  bool flag(std::string_view key, bool otherwise) const {
    const gguf::Entry* const entry = find(key);
    return entry == nullptr ? otherwise : entry->value.boolean().value_or(otherwise);
  }
  // None: there is no such key.
  std::optional<size_t> id(std::string_view key) const {
    const gguf::Entry* const entry = find(fmt::format("{}_token_id", key));
    const auto value = entry == nullptr ? std::nullopt : entry->value.integer();
    return value && *value >= 0 && static_cast<uint64_t>(*value) < pieces_.size()
               ? std::optional(static_cast<size_t>(*value))
               : std::nullopt;
  }

  // ---- kinds

  Status add_byte_level() {
    const std::string name = text("pre");
    const Splitting* const splitting = find_splitting(name);
    BOWLINE_REQUIRE_CODE(splitting != nullptr, Code::unsupported,
                         "It splits text as {} does, which is not known.", listed_name(name));
    out_["normalizer"] = normalizer_of(*splitting);
    out_["pre_tokenizer"] = pre_tokenizer_of(*splitting);
    out_["decoder"] = {{"type", "ByteLevel"},
                       {"add_prefix_space", true},
                       {"trim_offsets", true},
                       {"use_regex", true}};
    json merges = json::array();
    for (const std::string& merge : texts("merges")) {
      const size_t space = std::min(merge.find(' ', 1), merge.size());
      merges.push_back({merge.substr(0, space), merge.substr(std::min(space + 1, merge.size()))});
    }
    out_["model"] = {{"type", "BPE"},
                     {"fuse_unk", false},
                     {"byte_fallback", false},
                     {"ignore_merges", splitting->ignore_merges},
                     {"merges", std::move(merges)}};
    surround(id("bos"), splitting->adds_bos, id("eos"), false);
    return {};
  }

  void add_scored() {
    ScoredPieces from{pieces_, {}};
    std::vector<float> scores;
    for (size_t id = 0; id < pieces_.size(); ++id) {
      from.is_text.push_back(takes_part(types_[id]));
      scores.push_back(static_cast<float>(find("scores")->value.real(id).value_or(0)));
    }
    const auto unknown = id("unknown");
    out_["model"] = {{"type", "BPE"},
                     {"unk_token", unknown ? json(pieces_[*unknown]) : json()},
                     {"fuse_unk", true},
                     {"byte_fallback", true},
                     {"merges", merges_of(from, scores)}};
    json normalizers = json::array({replace(" ", kSpace)});
    json decoders = {replace(kSpace, " "), step("ByteFallback"), step("Fuse")};
    if (flag("add_space_prefix", true)) {
      normalizers.insert(normalizers.begin(), json{{"type", "Prepend"}, {"prepend", kSpace}});
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    out_["normalizer"] = sequence("normalizers", std::move(normalizers));
    out_["decoder"] = sequence("decoders", std::move(decoders));
    surround(id("bos"), true, id("eos"), false);
  }

  void add_unigram() {
    const auto unknown = id("unknown");
    const bool has_bytes = std::ranges::count(types_, TokenType::byte) != 0;
    out_["model"] = {{"type", "Unigram"},
                     {"unk_id", unknown ? json(*unknown) : json()},
                     {"byte_fallback", has_bytes}};
    json normalizers = json::array(), decoder = step("Metaspace");
    if (const std::string map = bytes("precompiled_charsmap"); !map.empty()) {
      normalizers.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", to_base64(map)}});
    }
    const bool merges = flag("remove_extra_whitespaces", false);
    const bool prefix = merges || flag("add_space_prefix", false);
    const json metaspace = {{"type", "Metaspace"},
                            {"replacement", kSpace},
                            {"prepend_scheme", prefix ? "always" : "never"},
                            {"split", !crosses_words()}};
    if (merges) {
      normalizers.push_back({{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}});
      normalizers.push_back(
          {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", kSpace}});
      out_["pre_tokenizer"] = metaspace;
    } else {
      if (prefix) {
        normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
      }
      normalizers.push_back(replace(" ", kSpace));
    }
    out_["normalizer"] = sequence("normalizers", std::move(normalizers));
    out_["decoder"] =
        has_bytes ? sequence("decoders", {step("ByteFallback"), metaspace}) : metaspace;
    surround(id("bos"), false, id("eos"), true);
  }

  // A piece goes on behind a space, so that text is not cut there.
  bool crosses_words() const {
    for (size_t id = 0; id < pieces_.size(); ++id) {
      if (command::crosses_words(types_[id], pieces_[id])) {
        return true;
      }
    }
    return false;
  }

  // GGUF marks what begins a word, tokenizer.json what goes on.
  void add_words() {
    for (size_t id = 0; id < pieces_.size(); ++id) {
      std::string& piece = pieces_[id];
      const bool special =
          types_[id] != TokenType::normal || (piece.starts_with('[') && piece.ends_with(']'));
      if (!special) {
        piece = piece.starts_with(kSpace) ? piece.substr(kSpace.size()) : "##" + piece;
      }
    }
    const auto unknown = id("unknown");
    out_["model"] = {{"type", "WordPiece"},
                     {"unk_token", unknown ? pieces_[*unknown] : "[UNK]"},
                     {"continuing_subword_prefix", "##"},
                     {"max_input_chars_per_word", 100}};
    const bool lowercase = flag("normalizer.lowercase", true);
    const bool strips = flag("normalizer.strip_accents", lowercase);
    out_["normalizer"] = {{"type", "BertNormalizer"},
                          {"clean_text", true},
                          {"handle_chinese_chars", true},
                          {"strip_accents", strips == lowercase ? json() : json(strips)},
                          {"lowercase", lowercase}};
    out_["pre_tokenizer"] = step("BertPreTokenizer");
    out_["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
    const auto cls = id("cls");
    surround(cls ? cls : id("bos"), true, id("seperator"), true);  // which the format spells so
  }

  // ---- what all kinds have

  // `adds_first`, `adds_last`: whether a text gets it where the file does not say so.
  void surround(std::optional<size_t> first, bool adds_first, std::optional<size_t> last,
                bool adds_last) {
    const auto before = flag("add_bos_token", adds_first) ? first : std::nullopt;
    const auto behind = flag("add_eos_token", adds_last) ? last : std::nullopt;
    if (!before && !behind) {
      return;
    }
    json single = json::array(), known = json::object();
    const auto add = [&](std::optional<size_t> id) {
      if (id) {
        const std::string& piece = pieces_[*id];
        single.push_back({{"SpecialToken", {{"id", piece}, {"type_id", 0}}}});
        known[piece] = {
            {"id", piece}, {"ids", json::array({*id})}, {"tokens", json::array({piece})}};
      }
    };
    add(before);
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    add(behind);
    json pair = single;
    // Of two texts BERT has one [CLS].
    const bool once = before && out_["model"]["type"] == "WordPiece";
    for (size_t i = once ? 1 : 0; i < single.size(); ++i) {
      json part = single[i];
      const char* const kind = part.contains("Sequence") ? "Sequence" : "SpecialToken";
      part[kind]["type_id"] = 1;
      part[kind]["id"] = kind == std::string_view("Sequence") ? json("B") : part[kind]["id"];
      pair.push_back(std::move(part));
    }
    out_["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", std::move(single)},
                              {"pair", std::move(pair)},
                              {"special_tokens", std::move(known)}};
  }

  json vocabulary() const {
    json out = json::object();
    for (size_t id = 0; id < pieces_.size(); ++id) {
      out[pieces_[id]] = id;
    }
    return out;
  }

  // Those of pieces that are found in text are of normal ones: the least of these is what the
  // unknown piece goes by.
  json scored_vocabulary() const {
    std::vector<double> scores;
    double least = 0;
    for (size_t id = 0; id < pieces_.size(); ++id) {
      scores.push_back(find("scores")->value.real(id).value_or(0));
      least = types_[id] == TokenType::normal ? std::min(least, scores[id]) : least;
    }
    json out = json::array();
    for (size_t id = 0; id < pieces_.size(); ++id) {
      out.push_back({pieces_[id], std::max(scores[id], least)});
    }
    return out;
  }

  json added_tokens() const {
    json out = json::array();
    for (size_t id = 0; id < pieces_.size(); ++id) {
      if (is_found_first(types_[id])) {
        out.push_back({{"id", id},
                       {"content", pieces_[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", types_[id] != TokenType::user_defined}});
      }
    }
    return out;
  }

  // The class that takes tokenizer.json as it is.
  json config() const {
    json out = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                {"clean_up_tokenization_spaces", false}};
    for (const import::SpecialToken& special : import::kSpecialTokens) {
      if (const auto token = id(special.gguf_part)) {
        out[special.name] = pieces_[*token];
      }
    }
    return out;
  }

  const gguf::File& file_;
  std::vector<std::string> pieces_;
  std::vector<TokenType> types_;
  json out_ = {{"version", "1.0"},      {"truncation", nullptr},    {"padding", nullptr},
               {"normalizer", nullptr}, {"pre_tokenizer", nullptr}, {"post_processor", nullptr}};
};

}  // namespace

Result<TokenizerFiles> tokenizer_files(std::span<const std::byte> gguf) {
  BOWLINE_TRY_ASSIGN(const gguf::File file, gguf::File::parse(gguf));
  return Converter(file).run();
}

}  // namespace bowline::command
