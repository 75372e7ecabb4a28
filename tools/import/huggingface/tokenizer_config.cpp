// Source  transformers, tokenization_utils_base.py, tokenization_utils_tokenizers.py and
//         models/*/tokenization_*.py, of versions 4 and 5.
#include "huggingface/tokenizer_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/escape.h"
#include "base/status.h"
#include "base/words.h"
#include "source/json.h"
#include "source/keys.h"

namespace bowline::huggingface {
namespace {

using import::Fields;
using import::KeyRule;
using import::KeyUse;
using import::Source;
using import::SourceAsset;
using nlohmann::json;

constexpr std::string_view kConfig = "tokenizer_config.json";

constexpr char kCleanUp[] = "clean_up_tokenization_spaces";
constexpr char kCleanUpBpe[] =
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output";

constexpr KeyRule kKeys[] = {
    {"tokenizer_class chat_template bos_token eos_token unk_token pad_token sep_token cls_token "
     "mask_token added_tokens_decoder additional_special_tokens extra_special_tokens "
     "model_specific_special_tokens add_bos_token add_eos_token add_prefix_space do_lower_case "
     "strip_accents tokenize_chinese_chars keep_accents model_max_length max_len truncation_side"},
    {"split_special_tokens fix_mistral_regex", KeyUse::fixed, "[false, null]"},
    // Padding does not change results.
    {"padding_side pad_to_multiple_of pad_token_type_id padding", KeyUse::harmless},
    // Default arguments of a call, which transformers ignores.
    {"max_length stride truncation truncation_strategy model_input_names return_token_type_ids",
     KeyUse::harmless},
    // Conversion of tokens to text.
    {"clean_up_tokenization_spaces "
     "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output "
     "spaces_between_special_tokens errors response_schema",
     KeyUse::harmless},
    // Offsets.
    {"trim_offsets", KeyUse::harmless},
    // Settings of tokenizers without tokenizer.json.
    {"do_basic_tokenize never_split wordpieces_prefix legacy from_slow sp_model_kwargs "
     "remove_space clean_text handle_chinese_chars use_fast vocab_file merges_file tokenizer_file "
     "special_tokens_map_file",
     KeyUse::harmless},
    // Origin of the files.
    {"name_or_path is_local local_files_only backend processor_class auto_map device_map "
     "trust_remote_code use_auth_token revision unsloth_version",
     KeyUse::harmless},
    {"use_default_system_prompt", KeyUse::harmless},  // of templates before chat_template
};

// Keys that must agree with tokenizer.json.
constexpr std::string_view kOfTokenizer =
    "added_tokens_decoder additional_special_tokens extra_special_tokens "
    "model_specific_special_tokens add_bos_token add_eos_token add_prefix_space do_lower_case "
    "strip_accents tokenize_chinese_chars keep_accents clean_up_tokenization_spaces "
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output";

SourceAsset* tokenizer_of(Source& out) {
  const auto asset = std::ranges::find(out.assets, "tokenizer", &SourceAsset::name);
  return asset == out.assets.end() ? nullptr : &*asset;
}

Result<json> parsed(const SourceAsset& asset) {
  const std::string_view text(reinterpret_cast<const char*>(asset.bytes.data()),
                              asset.bytes.size());
  BOWLINE_TRY_ASSIGN(json tokenizer, import::parse_json("tokenizer.json", text));
  BOWLINE_REQUIRE_CODE(tokenizer.is_object(), Code::bad_file, "tokenizer.json is not an object.");
  return tokenizer;
}

void store(const json& tokenizer, SourceAsset& asset) {
  const std::string text = tokenizer.dump();
  const auto bytes = std::as_bytes(std::span(text));
  asset.bytes.assign(bytes.begin(), bytes.end());
}

std::string type_of(const json& step) {
  const json type = step.is_object() ? step.value("type", json()) : json();
  return type.is_string() ? type.get<std::string>() : "";
}

// Returns the steps of a part of the tokenizer. A Sequence has its steps in `list`.
std::vector<json*> steps_of(json& part, const char* list) {
  if (!part.is_object()) {
    return {};
  }
  if (type_of(part) != "Sequence" || !part.contains(list)) {
    return {&part};
  }
  std::vector<json*> out;
  for (json& step : part[list]) {
    const std::vector<json*> inner = steps_of(step, list);
    out.insert(out.end(), inner.begin(), inner.end());
  }
  return out;
}

bool has_step(const std::vector<json*>& steps, std::string_view type) {
  return std::ranges::any_of(steps, [&](const json* step) { return type_of(*step) == type; });
}

bool lowercases(const std::vector<json*>& steps) {
  return std::ranges::any_of(steps, [&](const json* step) {
    return type_of(*step) == "Lowercase" ||
           (type_of(*step) == "BertNormalizer" && step->value("lowercase", json(true)) == true);
  });
}

// A token is a text, or an object with a content. Empty: there is no token.
std::string text_of(const json& token) {
  const json* value = &token;
  if (value->is_object() && value->contains("content")) {
    value = &(*value)["content"];
  }
  return value->is_string() ? value->get<std::string>() : std::string();
}

std::string token_text(const json& config, const char* key) {
  const auto at = config.find(key);
  return at == config.end() ? std::string() : text_of(*at);
}

class Tokenizer {
 public:
  Tokenizer(const json& config, json& tokenizer, Source& out)
      : config_(config), fields_(std::string(kConfig), config), tokenizer_(tokenizer), out_(out) {
    class_ = fields_.text_or("tokenizer_class", "");
  }

  Status run() {
    BOWLINE_TRY(Status(fields_.status()));
    BOWLINE_TRY(apply_normalizer());
    BOWLINE_TRY(check_prefix_space());
    BOWLINE_TRY(apply_added_tokens());
    for (const char* key :
         {"additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens"}) {
      BOWLINE_TRY(check_special_tokens(key));
    }
    note_clean_up();
    return check_ends();
  }

  bool changed() const { return changed_; }

 private:
  // Reads true, false or null.
  Result<std::optional<bool>> flag(const char* key) {
    const bool there = fields_.has(key);
    const bool value = fields_.boolean_or(key, false);
    BOWLINE_TRY(Status(fields_.status()));
    return there ? std::optional(value) : std::optional<bool>();
  }

  Status refuse(const char* key, std::string_view does) const {
    return Status(
        Code::unsupported,
        fmt::format("{} has \"{}\": {}, but tokenizer.json {}. The files do not tell which of "
                    "these settings the model was trained with. Change one of the files so that "
                    "they agree.",
                    kConfig, key, config_.at(key).dump(), does));
  }

  // The tokenizer classes of BERT replace the settings of their normalizer; ALBERT replaces the
  // whole normalizer. Other classes ignore these keys.
  Status apply_normalizer() {
    const std::vector<json*> steps = steps_of(tokenizer_["normalizer"], "normalizers");
    const bool is_bert = class_.empty() || class_.find("Bert") != std::string::npos;
    const bool is_albert = class_.starts_with("AlbertTokenizer");
    const auto bert = std::ranges::find_if(
        steps, [](const json* step) { return type_of(*step) == "BertNormalizer"; });
    if (is_bert && bert != steps.end()) {
      return set_normalizer(**bert);
    }
    BOWLINE_TRY_ASSIGN(const std::optional<bool> lower, flag("do_lower_case"));
    BOWLINE_TRY_ASSIGN(const std::optional<bool> keep, flag("keep_accents"));
    if ((is_bert || is_albert) && lower && *lower != lowercases(steps)) {
      return refuse("do_lower_case", *lower ? "does not lowercase texts" : "lowercases texts");
    }
    if (is_albert && keep && *keep == has_step(steps, "StripAccents")) {
      return refuse("keep_accents", *keep ? "removes accents" : "keeps accents");
    }
    return {};
  }

  // A named tokenizer class also sets the defaults of missing keys.
  Status set_normalizer(json& normalizer) {
    constexpr std::pair<const char*, const char*> kFlags[] = {
        {"do_lower_case", "lowercase"}, {"tokenize_chinese_chars", "handle_chinese_chars"}};
    for (const auto& [key, field] : kFlags) {
      BOWLINE_TRY_ASSIGN(const std::optional<bool> value, flag(key));
      if (value || !class_.empty()) {
        set(key, normalizer, field, value.value_or(true), true);
      }
    }
    BOWLINE_TRY_ASSIGN(const std::optional<bool> strips, flag("strip_accents"));
    if (config_.contains("strip_accents") || !class_.empty()) {
      set("strip_accents", normalizer, "strip_accents", strips ? json(*strips) : json(), json());
    }
    return {};
  }

  // `usual`: the default of the field.
  void set(const char* key, json& normalizer, const char* field, const json& value,
           const json& usual) {
    if (normalizer.value(field, usual) == value) {
      return;
    }
    normalizer[field] = value;
    changed_ = true;
    out_.notes.push_back(fmt::format(
        "The tokenizer uses \"{}\": {}, from {} and its \"tokenizer_class\". tokenizer.json has "
        "another value, which transformers ignores.",
        key, value.dump(), kConfig));
  }

  Status check_prefix_space() {
    BOWLINE_TRY_ASSIGN(const std::optional<bool> wants, flag("add_prefix_space"));
    if (!wants) {
      return {};
    }
    std::optional<bool> adds;
    if (has_step(steps_of(tokenizer_["normalizer"], "normalizers"), "Prepend")) {
      adds = true;
    }
    for (const json* step : steps_of(tokenizer_["pre_tokenizer"], "pretokenizers")) {
      const std::string type = type_of(*step);
      if (type == "Metaspace" && step->contains("prepend_scheme")) {
        adds = (*step)["prepend_scheme"] != "never";
      } else if (type == "Metaspace" || type == "ByteLevel") {
        adds = step->value("add_prefix_space", json(true)) == true;
      }
    }
    if (adds && *adds != *wants) {
      return refuse("add_prefix_space",
                    *adds ? "adds a space before a text" : "adds no space before a text");
    }
    return {};
  }

  json* added_token(const std::string& text) {
    json& added = tokenizer_["added_tokens"];
    const auto at = !added.is_array() ? added.end() : std::ranges::find_if(added, [&](auto& token) {
      return text_of(token) == text;
    });
    return !added.is_array() || at == added.end() ? nullptr : &*at;
  }

  // Each token replaces the token of tokenizer.json with the same id.
  Status apply_added_tokens() {
    const json* const tokens = fields_.object("added_tokens_decoder");
    BOWLINE_TRY(Status(fields_.status()));
    if (tokens == nullptr) {
      return {};
    }
    for (const auto& [id, token] : tokens->items()) {
      const std::string text = text_of(token);
      json* const known = added_token(text);
      BOWLINE_REQUIRE_CODE(
          known != nullptr && known->value("id", json()).dump() == id, Code::unsupported,
          "{} has \"added_tokens_decoder\" with the token {} and the id {}, but tokenizer.json has "
          "no such added token. Add it to \"added_tokens\" there.",
          kConfig, listed_name(text), escaped(id));
      for (const char* key : {"lstrip", "rstrip", "single_word", "normalized", "special"}) {
        const json value = token.value(key, json());
        if (value.is_boolean() && known->value(key, json()) != value) {
          (*known)[key] = value;
          changed_ = true;
        }
      }
    }
    return {};
  }

  Status check_special_tokens(const char* key) {
    const auto at = config_.find(key);
    if (at == config_.end() || !at->is_structured()) {
      return {};
    }
    for (const json& token : *at) {
      const std::string text = text_of(token);
      BOWLINE_REQUIRE_CODE(added_token(text) != nullptr, Code::unsupported,
                           "{} has \"{}\" with the token {}, but tokenizer.json has no such added "
                           "token. Add it to \"added_tokens\" there.",
                           kConfig, key, listed_name(text));
    }
    return {};
  }

  // Returns the tokens that tokenizer.json adds at the start and end of a text. Empty: no token.
  std::pair<std::string, std::string> ends() {
    std::pair<std::string, std::string> out;
    for (json* step : steps_of(tokenizer_["post_processor"], "processors")) {
      const std::string type = type_of(*step);
      const json single = step->value("single", json());
      if (type == "TemplateProcessing" && single.is_array() && !single.empty()) {
        const auto special = [](const json& piece) {
          const json token = piece.is_object() ? piece.value("SpecialToken", json()) : json();
          return token.is_object() ? text_of(token.value("id", json())) : std::string();
        };
        out = {special(single.front()), special(single.back())};
      } else if (type == "BertProcessing" || type == "RobertaProcessing") {
        const auto first = [&](const char* key) {
          const json pair = step->value(key, json());
          return pair.is_array() && !pair.empty() ? text_of(pair[0]) : std::string();
        };
        out = {first("cls"), first("sep")};
      }
    }
    return out;
  }

  // Version 4 of transformers uses "add_bos_token" and "add_eos_token". Version 5 uses
  // tokenizer.json.
  Status check_ends() {
    const auto [first, last] = ends();
    for (const auto& [key, name, end] :
         {std::tuple("add_bos_token", "bos_token", first), {"add_eos_token", "eos_token", last}}) {
      const std::string token = token_text(config_, name);
      BOWLINE_TRY_ASSIGN(const std::optional<bool> wants, flag(key));
      if (wants && !token.empty() && *wants != (end == token)) {
        return refuse(key,
                      *wants ? "does not add the token to a text" : "adds the token to a text");
      }
    }
    return {};
  }

  // False for encoders, which do not generate text. Without "architectures" the answer is true.
  bool makes_text() const {
    const auto names = out_.config.find("architectures");
    return names == out_.config.end() || !names->is_array() ||
           std::ranges::any_of(*names, [](const json& name) {
             const std::string text = name.is_string() ? name.get<std::string>() : "";
             return text.ends_with("ForCausalLM") || text.ends_with("LMHeadModel");
           });
  }

  // Version 5 of transformers applies the first key if the tokenizer is not BPE, or if the second
  // key is true.
  void note_clean_up() {
    const auto is_true = [&](const char* key) { return config_.value(key, json()) == true; };
    const bool is_bpe = type_of(tokenizer_["model"]) == "BPE";
    if (is_true(kCleanUp) && (!is_bpe || is_true(kCleanUpBpe)) && makes_text()) {
      out_.notes.push_back(
          fmt::format("{} has \"{}\": true, which Bowline does not apply. Generated text keeps the "
                      "spaces before punctuation and before endings such as \"n't\". To get the "
                      "text of transformers, remove these spaces afterwards.",
                      kConfig, kCleanUp));
    }
  }

  const json& config_;
  Fields fields_;
  json& tokenizer_;
  Source& out_;
  std::string class_;
  bool changed_ = false;
};

// Greater lengths mean "no limit" (1e30).
constexpr int64_t kMostTokens = int64_t{1} << 24;

Status read_limits(const json& config, Source& out) {
  for (const char* key : {"model_max_length", "max_len"}) {
    const auto at = config.find(key);
    if (at == config.end() || at->is_null()) {
      continue;
    }
    BOWLINE_REQUIRE_CODE(at->is_number() && at->get<double>() >= 1, Code::bad_file,
                         "{}: \"{}\" is {}, not a number of tokens.", kConfig, key,
                         import::shown(*at));
    if (at->get<double>() < kMostTokens) {
      out.metadata.emplace_back("model_max_length", std::to_string(at->get<int64_t>()));
      break;
    }
  }
  Fields fields(std::string(kConfig), config);
  const std::string side = fields.text_or("truncation_side", "right");
  BOWLINE_TRY(Status(fields.status()));
  BOWLINE_REQUIRE_CODE(
      side == "right" || side == "left", Code::bad_file,
      "{} has \"truncation_side\": \"{}\", which is neither \"right\" nor \"left\".", kConfig,
      escaped(side));
  if (side == "left") {
    out.metadata.emplace_back("truncation_side", side);
  }
  return {};
}

}  // namespace

Status apply_tokenizer_config(const json& config, Source& out) {
  BOWLINE_TRY(import::check_keys(kConfig, config, {kKeys}));
  for (const import::SpecialToken& token : import::kSpecialTokens) {
    if (const std::string text = token_text(config, token.name); !text.empty()) {
      out.metadata.emplace_back(token.name, text);
    }
  }
  BOWLINE_TRY(read_limits(config, out));
  SourceAsset* const asset = tokenizer_of(out);
  const auto items = config.items();
  const bool is_asked = std::any_of(items.begin(), items.end(), [](const auto& item) {
    return is_one_of(kOfTokenizer, item.key()) &&
           (import::asks(item.value()) || item.value().is_boolean());
  });
  const bool sets = config.contains("tokenizer_class") || config.contains("strip_accents");
  if (asset == nullptr || !(is_asked || sets)) {
    return {};
  }
  BOWLINE_TRY_ASSIGN(json json_of_tokenizer, parsed(*asset));
  Tokenizer tokenizer(config, json_of_tokenizer, out);
  BOWLINE_TRY(tokenizer.run());
  if (tokenizer.changed()) {
    store(json_of_tokenizer, *asset);
  }
  return {};
}

Status lowercase_text(Source& out) {
  SourceAsset* const asset = tokenizer_of(out);
  BOWLINE_REQUIRE_CODE(
      asset != nullptr, Code::unsupported,
      "sentence_bert_config.json has \"do_lower_case\": true, but the folder has no "
      "tokenizer.json to add this step to.");
  BOWLINE_TRY_ASSIGN(json tokenizer, parsed(*asset));
  json& normalizer = tokenizer["normalizer"];
  json steps = json::array({{{"type", "Lowercase"}}});
  for (const json* step : steps_of(normalizer, "normalizers")) {
    steps.push_back(*step);
  }
  if (lowercases(steps_of(normalizer, "normalizers"))) {
    return {};
  }
  normalizer = {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
  store(tokenizer, *asset);
  out.notes.push_back("Text is lowercased first (\"do_lower_case\" of sentence_bert_config.json).");
  return {};
}

}  // namespace bowline::huggingface
