#include "export/json_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/status.h"
#include "export/scores.h"
#include "gguf/file.h"
#include "source/source.h"

namespace bowline::command {
namespace {

using nlohmann::json;
using text::Description;
using text::TokenType;
namespace steps = text::steps;

// Writes the fields of a step.
class Fields {
 public:
  explicit Fields(std::string_view type) { out_["type"] = type; }
  void field(std::string_view key, const auto& value) { out_[std::string(key)] = written(value); }
  void needed(std::string_view key, const auto& value) { field(key, value); }
  json& out() { return out_; }

 private:
  template <class T>
  static json written(const T& value) {
    return value;
  }
  template <class T>
  static json written(const std::optional<T>& value) {
    return value ? json(*value) : json();
  }
  static json written(const text::Letter& letter) { return letter.text; }
  static json written(const text::Base64& base64) { return to_base64(base64.bytes); }
  static json written(const text::PatternText& pattern) {
    return {{pattern.is_expression ? "Regex" : "String", pattern.text}};
  }
  static json written(text::Matches matches) {
    return text::kMatches[static_cast<size_t>(matches)];
  }
  static json written(text::Prepend prepend) {
    return text::kPrepend[static_cast<size_t>(prepend)];
  }
  json out_;
};

json step_json(const auto& step) {
  return std::visit(
      [](const auto& s) {
        Fields fields(s.kType);
        s.fields(s, fields);
        return std::move(fields.out());
      },
      step);
}

// `list` is the key for the steps of a Sequence.
json group_json(const auto& group, const char* list) {
  json all = json::array();
  for (const auto& step : group) {
    all.push_back(step_json(step));
  }
  return all.empty()       ? json()
         : all.size() == 1 ? all[0]
                           : json{{"type", "Sequence"}, {list, std::move(all)}};
}

class Converter {
 public:
  explicit Converter(Description description) : d_(std::move(description)) {
    for (const auto& [piece, id] : d_.vocabulary) {
      rows_.pieces.push_back(piece);
      rows_.types.push_back(d_.type(rows_.types.size()));
    }
  }

  std::string tokenizer() {
    split_words();
    json out = {{"version", "1.0"},
                {"truncation", nullptr},
                {"padding", nullptr},
                {"normalizer", normalizer_json(d_.normalizers)},
                {"pre_tokenizer", pre_tokenizer_json(d_.pre_tokenizers)},
                {"post_processor", post_processor()},
                {"decoder", group_json(*d_.decoders, "decoders")},
                {"model", step_json(d_.model)},
                {"added_tokens", added_tokens()}};
    out["model"]["vocab"] = is<steps::Unigram>() ? scored_vocabulary() : vocabulary();
    if (is<steps::Bpe>()) {
      out["model"]["merges"] = merges();
    }
    return out.dump() + "\n";
  }

  // Returns tokenizer_config.json with the class that uses tokenizer.json unchanged.
  std::string config(const gguf::File& file) const {
    json out = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                {"clean_up_tokenization_spaces", false}};
    for (const import::SpecialToken& special : import::kSpecialTokens) {
      const gguf::Entry* const entry =
          file.find(fmt::format("tokenizer.ggml.{}_token_id", special.gguf_part));
      const int64_t id = entry == nullptr ? -1 : entry->value.integer().value_or(-1);
      if (id >= 0 && std::cmp_less(id, rows_.pieces.size())) {
        out[special.name] = rows_.pieces[static_cast<size_t>(id)];
      }
    }
    return out.dump(2) + "\n";
  }

 private:
  template <class Model>
  bool is() const {
    return std::holds_alternative<Model>(d_.model);
  }

  // Splits text at spaces, unless a token crosses a space.
  void split_words() {
    const bool crosses = crosses_words(rows_);
    const auto set = [&](auto& group) {
      for (auto& step : group) {
        if (auto* const metaspace = std::get_if<steps::Metaspace>(&step)) {
          metaspace->split = !crosses;
        }
      }
    };
    set(d_.pre_tokenizers);
    set(*d_.decoders);
  }

  // Returns the tokens that are added around a text, and around a pair of texts.
  json post_processor() const {
    if (d_.post_processors.empty()) {
      return nullptr;
    }
    const auto& around = std::get<steps::Surround>(d_.post_processors[0]);
    json known = json::object();
    const auto add = [&](json& to, const std::vector<int32_t>& ids, int type) {
      for (const int32_t id : ids) {
        const std::string& piece = rows_.pieces[static_cast<size_t>(id)];
        to.push_back({{"SpecialToken", {{"id", piece}, {"type_id", type}}}});
        known[piece] = {
            {"id", piece}, {"ids", json::array({id})}, {"tokens", json::array({piece})}};
      }
    };
    const auto add_text = [&](json& to, const char* id, int type) {
      to.push_back({{"Sequence", {{"id", id}, {"type_id", type}}}});
      add(to, around.behind, type);
    };
    json single = json::array();
    add(single, around.before, 0);
    add_text(single, "A", 0);
    json pair = single;
    // WordPiece has one [CLS] for both texts.
    add(pair, is<steps::WordPiece>() ? std::vector<int32_t>() : around.before, 1);
    add_text(pair, "B", 1);
    return {{"type", "TemplateProcessing"},
            {"single", std::move(single)},
            {"pair", std::move(pair)},
            {"special_tokens", std::move(known)}};
  }

  json vocabulary() const {
    json out = json::object();
    for (const auto& [piece, id] : d_.vocabulary) {
      out[piece] = id;
    }
    return out;
  }

  // Only normal tokens occur in text. Readers derive the score of the unknown token from the least
  // score, so no other token may have a lower score.
  json scored_vocabulary() const {
    double least = 0;
    for (size_t id = 0; id < rows_.pieces.size(); ++id) {
      least = rows_.types[id] == TokenType::normal ? std::min(least, d_.scores[id]) : least;
    }
    json out = json::array();
    for (size_t id = 0; id < rows_.pieces.size(); ++id) {
      out.push_back({rows_.pieces[id], std::max(d_.scores[id], least)});
    }
    return out;
  }

  json merges() const {
    json out = json::array();
    for (const auto& [left, right] : d_.merges) {
      out.push_back({left, right});
    }
    for (const auto& [left, right] :
         d_.scores.empty() ? std::vector<Merge>() : merges_of(rows_, d_.scores)) {
      out.push_back({left, right});
    }
    return out;
  }

  json added_tokens() const {
    json out = json::array();
    for (const text::AddedToken& token : d_.added) {
      out.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", token.single_word},
                     {"lstrip", token.lstrip},
                     {"rstrip", token.rstrip},
                     {"normalized", token.normalized},
                     {"special", token.special}});
    }
    return out;
  }

  Description d_;
  Rows rows_;
};

}  // namespace

json normalizer_json(const std::vector<steps::Normalizer>& steps) {
  return group_json(steps, "normalizers");
}
json pre_tokenizer_json(const std::vector<steps::PreTokenizer>& steps) {
  return group_json(steps, "pretokenizers");
}

Result<TokenizerFiles> tokenizer_files(std::span<const std::byte> gguf) {
  BOWLINE_TRY_ASSIGN(Description description, text::describe_gguf(gguf));
  BOWLINE_TRY_ASSIGN(const gguf::File file, gguf::File::parse(gguf));
  Converter converter(std::move(description));
  return TokenizerFiles{converter.tokenizer(), converter.config(file)};
}

}  // namespace bowline::command
