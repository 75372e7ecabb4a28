#include "export/gguf_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/escape.h"
#include "base/status.h"
#include "export/tensors.h"
#include "gguf/metadata.h"

namespace bowline::command {
namespace {

using gguf::KeyTerm;
using gguf::Metadata;
using gguf::Terms;
using nlohmann::json;

// Returns a setting, which newer configs store in "rope_parameters". Null: there is none.
const json& setting(const json& config, std::string_view name) {
  const json& value = value_at(config, name);
  return value.is_null() ? value_at(value_at(config, "rope_parameters"), name) : value;
}

Status add_whole(std::string_view key, const json& value, std::string_view name, Metadata& to) {
  const bool fits = value.is_number_integer() && value >= 0 && value <= UINT32_MAX;
  BOWLINE_REQUIRE(fits,
                  "\"{}\" in config.json is {}, but the GGUF key \"{}\" needs a whole number.",
                  name, escaped(value.dump()), key);
  to.number(key, value.get<uint32_t>());
  return {};
}

Status add_key(const json& config, const Terms& terms, const KeyTerm& term, Metadata& to) {
  const std::string key = fmt::format("{}.{}", terms.architecture, term.gguf);
  json value = setting(config, term.hugging_face);
  if (value.is_null() && term.hugging_face == "n_inner") {  // missing if it has its default
    value = 4 * integer_at(config, "n_embd", 0);
  }
  if (value.is_null()) {
    BOWLINE_REQUIRE(!term.needed, "config.json has no \"{}\", which GGUF needs for \"{}\".",
                    term.hugging_face, key);
    return {};
  }
  if (term.kind == KeyTerm::Kind::whole) {
    return add_whole(key, value, term.hugging_face, to);
  }
  BOWLINE_REQUIRE(value.is_number(),
                  "\"{}\" in config.json is {}, but the GGUF key \"{}\" needs a number.",
                  term.hugging_face, escaped(value.dump()), key);
  to.number(key, value.get<float>());
  return {};
}

int64_t head_dim_of(const json& config) {
  const int64_t heads = integer_at(config, "num_attention_heads", 0);
  const int64_t width = integer_at(config, "hidden_size", 0);
  return integer_at(config, "head_dim", heads > 0 ? width / heads : 0);
}

// Rejects a sliding window that GGUF cannot store. A window that is at least as long as the context
// is ignored. Without "use_sliding_window" only Mistral has a window.
Status check_window(const json& config, const Terms& terms) {
  constexpr int64_t kOfMistral = 4096;  // default of "sliding_window"
  const bool is_mistral = value_at(config, "model_type") == "mistral";
  const bool left_out = is_mistral && !config.contains("sliding_window");
  const json sliding = left_out ? json(kOfMistral) : setting(config, "sliding_window");
  const bool hides =
      !sliding.is_null() && sliding < integer_at(config, "max_position_embeddings", INT64_MAX);
  const bool has_key =
      std::ranges::find(terms.keys, "sliding_window", &KeyTerm::hugging_face) != terms.keys.end();
  BOWLINE_REQUIRE(
      has_key || !hides || !flag_at(config, "use_sliding_window", is_mistral),
      "config.json has a sliding window ({}), which the GGUF architecture {} does not have.",
      sliding.dump(), terms.architecture);
  return {};
}

Status check_implied(json config, const Terms& terms) {
  config["head_dim"] = head_dim_of(config);
  for (const gguf::ImpliedTerm& term : terms.implied) {
    const json& said = value_at(config, term.hugging_face);
    const json implied = term.of(config);
    BOWLINE_REQUIRE(said.is_null() || said == implied,
                    "\"{}\" in config.json is {}, but the GGUF architecture {} allows only {}.",
                    term.hugging_face, escaped(said.dump()), terms.architecture, implied.dump());
  }
  return {};
}

// Returns the RoPE scaling with its type. Null: there is none.
Result<json> scaling_of(const json& config) {
  for (const char* const key : {"rope_scaling", "rope_parameters"}) {
    json out = value_at(config, key);
    const std::string type = text_at(out, text_at(out, "rope_type").empty() ? "type" : "rope_type");
    if (type.empty() || type == "default") {
      continue;
    }
    BOWLINE_REQUIRE(type == "linear" || type == "llama3" || type == "yarn",
                    "GGUF has no key for the RoPE scaling \"{}\".", escaped(type));
    for (const char* const extra :
         {"attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"}) {
      BOWLINE_REQUIRE(type != "yarn" || value_at(out, extra).is_null(),
                      "The RoPE scaling in config.json has \"{}\", for which GGUF has no key.",
                      extra);
    }
    out["rope_type"] = type;
    return out;
  }
  return json();
}

Status add_scaling(const json& config, const Terms& terms, Metadata& to) {
  BOWLINE_TRY_ASSIGN(const json scaling, scaling_of(config));
  if (scaling.is_null() || scaling["rope_type"] == "llama3") {  // stored as a tensor
    return {};
  }
  const std::string prefix = fmt::format("{}.rope.scaling.", terms.architecture);
  to.text(prefix + "type", scaling["rope_type"].get<std::string>());
  BOWLINE_REQUIRE(value_at(scaling, "factor").is_number(),
                  "The RoPE scaling in config.json has no factor.");
  to.number(prefix + "factor", scaling["factor"].get<float>());
  const auto context = scaling.find("original_max_position_embeddings");
  return context == scaling.end() ? Status()
                                  : add_whole(prefix + "original_context_length", *context,
                                              "original_max_position_embeddings", to);
}

}  // namespace

Status add_settings(const json& config, const Terms& terms, Metadata& to) {
  to.text("general.architecture", terms.architecture);
  for (const KeyTerm& term : terms.keys) {
    if (terms.rotary && term.hugging_face == "head_dim") {
      continue;
    }
    BOWLINE_TRY(add_key(config, terms, term, to));
  }
  const std::string prefix(terms.architecture);
  BOWLINE_TRY(add_whole(prefix + ".vocab_size", setting(config, "vocab_size"), "vocab_size", to));
  if (!terms.rotary) {
    return {};
  }
  BOWLINE_TRY(check_window(config, terms));
  BOWLINE_TRY(check_implied(config, terms));
  const json dim = head_dim_of(config);
  for (const char* const key :
       {".attention.key_length", ".attention.value_length", ".rope.dimension_count"}) {
    BOWLINE_TRY(add_whole(prefix + key, dim, "head_dim", to));
  }
  return add_scaling(config, terms, to);
}

Result<std::vector<float>> rope_divisors(const json& config) {
  BOWLINE_TRY_ASSIGN(const json scaling, scaling_of(config));
  if (scaling.is_null() || scaling["rope_type"] != "llama3") {
    return std::vector<float>();
  }
  for (const char* const key :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    BOWLINE_REQUIRE(value_at(scaling, key).is_number(),
                    "The RoPE scaling in config.json has no number \"{}\".", key);
  }
  const json base = setting(config, "rope_theta");
  return gguf::llama3_divisors(scaling, base.is_number() ? base.get<double>() : 10000.0,
                               head_dim_of(config));
}

}  // namespace bowline::command
