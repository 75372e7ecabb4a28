#include "gguf/metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/escape.h"
#include "base/float16.h"
#include "base/status.h"

namespace bowline::gguf {
namespace {

using nlohmann::json;

// The shortest decimal that rounds to this f32: 1e-05, not 9.99999975e-06.
double shortest(float x) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), x).ptr;
  double out = 0;
  std::from_chars(text, end, out);
  return out;
}

class Keys {
 public:
  Keys(const File& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  const Value* find(std::string_view key) const {
    const Entry* const entry = file_.find(prefix_ + std::string(key));
    return entry == nullptr ? nullptr : &entry->value;
  }

  // Null if the key is missing. A list with a value per layer must have equal values.
  Result<json> number(const KeyTerm& term) const {
    const Value* const value = find(term.gguf);
    if (value == nullptr) {
      BOWLINE_REQUIRE_CODE(!term.needed, Code::bad_file, "The file has no key \"{}{}\".", prefix_,
                           term.gguf);
      return json();
    }
    const bool whole = term.kind == KeyTerm::Kind::whole;
    const auto at = [&](uint64_t i) {
      return whole ? json_of(value->integer(i)) : json_of(value->real(i));
    };
    const json first = at(0);
    BOWLINE_REQUIRE_CODE(!first.is_null(), Code::bad_file, "The key \"{}{}\" is not {}.", prefix_,
                         term.gguf, whole ? "an integer" : "a number");
    for (uint64_t i = 1; i < value->count; ++i) {
      BOWLINE_REQUIRE_CODE(at(i) == first, Code::unsupported,
                           "The key \"{}{}\" differs between layers ({} and {}).", prefix_,
                           term.gguf, first.dump(), at(i).dump());
    }
    return first;
  }

  Result<json> optional(std::string_view key, KeyTerm::Kind kind = KeyTerm::Kind::whole) const {
    return number({key, "", kind, false});
  }

  Result<std::string> text(std::string_view key, std::string_view otherwise) const {
    const Value* const value = find(key);
    if (value == nullptr) {
      return std::string(otherwise);
    }
    const auto text = value->text();
    BOWLINE_REQUIRE_CODE(text.has_value(), Code::bad_file, "The key \"{}{}\" is not a text.",
                         prefix_, key);
    return std::string(*text);
  }

 private:
  static json json_of(std::optional<int64_t> value) { return value ? json(*value) : json(); }
  static json json_of(std::optional<double> value) {
    return value && std::isfinite(*value) ? json(shortest(static_cast<float>(*value))) : json();
  }

  const File& file_;
  std::string prefix_;
};

const TensorEntry* find_tensor(const File& file, std::string_view name) {
  const auto found = std::ranges::find(file.tensors, name, &TensorEntry::name);
  return found == file.tensors.end() ? nullptr : &*found;
}

// rope.scaling.*; null if the file has no scaling.
Result<json> key_scaling(const Keys& keys) {
  // As in llama.cpp: a factor without a type is linear, and older files store the factor in
  // "scale_linear".
  BOWLINE_TRY_ASSIGN(const std::string type, keys.text("rope.scaling.type", "linear"));
  BOWLINE_REQUIRE_CODE(type == "none" || type == "linear" || type == "yarn", Code::unsupported,
                       "The RoPE scaling \"{}\" is not supported.", escaped(type));
  BOWLINE_TRY_ASSIGN(json factor, keys.optional("rope.scaling.factor", KeyTerm::Kind::real));
  if (factor.is_null()) {
    BOWLINE_TRY_ASSIGN(factor, keys.optional("rope.scale_linear", KeyTerm::Kind::real));
  }
  if (type == "none" || factor.is_null() || factor == 0 || factor == 1) {
    return json();
  }
  BOWLINE_TRY_ASSIGN(const json context, keys.optional("rope.scaling.original_context_length"));
  json out = {{"rope_type", type}, {"factor", factor}};
  if (!context.is_null()) {
    out["original_max_position_embeddings"] = context;
  }
  return out;
}

// rope_freqs.weight; null if the file has no such tensor.
Result<json> tensor_scaling(const File& file, double base, int64_t dim) {
  const TensorEntry* const tensor = find_tensor(file, "rope_freqs.weight");
  if (tensor == nullptr) {
    return json();
  }
  BOWLINE_REQUIRE_CODE(
      tensor->type->name == "F32" && tensor->shape == std::vector<int64_t>{dim / 2}, Code::bad_file,
      "Tensor \"rope_freqs.weight\" is not F32 [{}].", dim / 2);
  std::vector<float> divisors(static_cast<size_t>(dim / 2));
  std::memcpy(divisors.data(), tensor->bytes.data(), tensor->bytes.size());
  return llama3_scaling(divisors, base, dim);
}

Status add_rotary(const File& file, const Keys& keys, json& config) {
  const auto heads = config["num_attention_heads"].get<int64_t>();
  const auto width = config["hidden_size"].get<int64_t>();
  BOWLINE_REQUIRE_CODE(heads > 0 && width > 0, Code::bad_file,
                       "The file has {} heads and a width of {}.", heads, width);
  if (!config.contains("head_dim")) {
    config["head_dim"] = width / heads;
  }
  const auto dim = config["head_dim"].get<int64_t>();
  for (const char* const key : {"rope.dimension_count", "attention.value_length"}) {
    BOWLINE_TRY_ASSIGN(const json count, keys.optional(key));
    BOWLINE_REQUIRE_CODE(count.is_null() || count == dim, Code::unsupported,
                         "The key \"{}\" is {}, but the heads have size {}.", key, count.dump(),
                         dim);
  }
  if (!config.contains("num_key_value_heads")) {
    config["num_key_value_heads"] = heads;
  }
  if (!config.contains("rope_theta")) {
    config["rope_theta"] = 10000.0;
  }
  BOWLINE_TRY_ASSIGN(json scaling, key_scaling(keys));
  BOWLINE_TRY_ASSIGN(const json divided,
                     tensor_scaling(file, config["rope_theta"].get<double>(), dim));
  BOWLINE_REQUIRE_CODE(scaling.is_null() || divided.is_null(), Code::unsupported,
                       "The file has both a RoPE scaling and the tensor \"rope_freqs.weight\".");
  scaling = divided.is_null() ? scaling : divided;
  if (!scaling.is_null()) {
    config["rope_scaling"] = scaling;
  }
  return {};
}

struct TokenKey {
  std::string_view gguf;  // after "tokenizer.ggml."
  const char* setting;
  bool is_added = false;  // to a list. Tokens that end a turn also end an answer.
};
constexpr TokenKey kTokenKeys[] = {
    {"bos", "bos_token_id"},       {"eos", "eos_token_id"},       {"padding", "pad_token_id"},
    {"eot", "eos_token_id", true}, {"eom", "eos_token_id", true},
};

Status add_tokens(const File& file, json& config) {
  for (const TokenKey& token : kTokenKeys) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", token.gguf);
    const Entry* const entry = file.find(key);
    if (entry == nullptr) {
      continue;
    }
    const std::optional<int64_t> id = entry->value.integer();
    BOWLINE_REQUIRE_CODE(id.has_value(), Code::bad_file, "The key \"{}\" is not an integer.", key);
    json& ids = config[token.setting];
    if (!token.is_added) {
      ids = *id;
      continue;
    }
    if (!ids.is_array()) {
      ids = ids.is_null() ? json::array() : json::array({ids});
    }
    if (std::find(ids.begin(), ids.end(), *id) == ids.end()) {
      ids.push_back(*id);
    }
  }
  return {};
}

}  // namespace

std::vector<float> llama3_divisors(const json& scaling, double base, int64_t dim) {
  const auto factor = scaling["factor"].get<double>();
  const auto low = scaling["low_freq_factor"].get<double>();
  const auto high = scaling["high_freq_factor"].get<double>();
  const auto context = scaling["original_max_position_embeddings"].get<double>();
  std::vector<float> out;
  for (int64_t i = 0; i < dim; i += 2) {
    const double length =
        2 * std::numbers::pi * std::pow(base, static_cast<double>(i) / static_cast<double>(dim));
    const double smooth = (context / length - low) / (high - low);
    const double divisor = length < context / high  ? 1
                           : length > context / low ? factor
                                                    : 1 / ((1 - smooth) / factor + smooth);
    out.push_back(static_cast<float>(divisor));
  }
  return out;
}

namespace {

constexpr double kHighFrequency = 4;

// A wavelength of RoPE and how a Llama 3 scaling treats it.
struct Wavelength {
  double length = 0;
  double smooth = 0;  // 1: unchanged; 0: divided by the whole factor
};

std::vector<Wavelength> wavelengths(std::span<const float> divisors, double factor, double base,
                                    int64_t dim) {
  std::vector<Wavelength> out;
  for (size_t i = 0; i < divisors.size(); ++i) {
    const double d = divisors[i];
    const double smooth = d <= 1.0001            ? 1
                          : d >= factor * 0.9999 ? 0
                                                 : (1 / d - 1 / factor) / (1 - 1 / factor);
    out.push_back({2 * std::numbers::pi *
                       std::pow(base, 2 * static_cast<double>(i) / static_cast<double>(dim)),
                   smooth});
  }
  return out;
}

// Estimates the context if at most one wavelength is between the unchanged and the divided ones.
// Assumes the usual high_freq_factor.
double context_between(std::span<const Wavelength> waves) {
  double longest_whole = 0;  // longest unchanged wavelength
  double shortest_divided = std::numeric_limits<double>::infinity();
  for (const Wavelength& w : waves) {
    if (w.smooth > 0 && w.smooth < 1) {
      return w.length * (1 + w.smooth * (kHighFrequency - 1));
    }
    if (w.smooth == 1) {
      longest_whole = std::max(longest_whole, w.length);
    } else {
      shortest_divided = std::min(shortest_divided, w.length);
    }
  }
  return longest_whole == 0 ? shortest_divided / 2
         : std::isinf(shortest_divided)
             ? longest_whole * 2 * kHighFrequency
             : std::sqrt(longest_whole * kHighFrequency * shortest_divided);
}

}  // namespace

// Between the two plain ranges 1 / divisor = (1 - smooth) / factor + smooth. `smooth` is linear in
// the inverse wavelength, so two points determine the line. A common factor of low_freq_factor,
// high_freq_factor and the context does not change the line, so low_freq_factor is set to 1.
Result<json> llama3_scaling(std::span<const float> divisors, double base, int64_t dim) {
  const double factor = *std::ranges::max_element(divisors);
  const std::vector<Wavelength> waves = wavelengths(divisors, factor, base, dim);
  std::vector<Wavelength> line;
  std::ranges::copy_if(waves, std::back_inserter(line),
                       [](const Wavelength& w) { return w.smooth > 0 && w.smooth < 1; });
  double high = kHighFrequency;
  double context = 0;
  if (line.size() < 2) {
    context = context_between(waves);
  } else {
    const double slope = (line.back().smooth - line.front().smooth) /
                         (1 / line.back().length - 1 / line.front().length);
    const double foot = line.front().smooth - slope / line.front().length;  // -low / (high - low)
    BOWLINE_REQUIRE_CODE(foot < 0, Code::unsupported,
                         "The values of tensor \"rope_freqs.weight\" do not match any supported "
                         "RoPE scaling.");
    high = std::round((1 - 1 / foot) * 1000) / 1000;
    context = -slope / foot;
  }
  const json out = {
      {"rope_type", "llama3"},
      {"factor", shortest(static_cast<float>(factor))},
      {"low_freq_factor", 1.0},
      {"high_freq_factor", high},
      {"original_max_position_embeddings", std::llround(std::clamp(context, 1.0, 1e9))}};
  const std::vector<float> made = llama3_divisors(out, base, dim);
  for (size_t i = 0; i < made.size(); ++i) {
    BOWLINE_REQUIRE_CODE(std::abs(made[i] - divisors[i]) <= 1e-4f * made[i], Code::unsupported,
                         "The values of tensor \"rope_freqs.weight\" do not match any supported "
                         "RoPE scaling: value {} is {}, but the llama3 scaling has {}.",
                         i, divisors[i], made[i]);
  }
  return out;
}

Result<json> config_of(const File& file, const Terms& terms) {
  const Keys keys(file, terms.architecture);
  json config = terms.fixed;
  config["model_type"] = terms.model_type.empty() ? terms.architecture : terms.model_type;
  config["architectures"] = {terms.class_name};
  for (const KeyTerm& term : terms.keys) {
    BOWLINE_TRY_ASSIGN(const json value, keys.number(term));
    if (!value.is_null()) {
      config[std::string(term.hugging_face)] = value;
    }
  }
  if (terms.rotary) {
    BOWLINE_TRY(add_rotary(file, keys, config));
  }
  for (const ImpliedTerm& term : terms.implied) {
    config[std::string(term.hugging_face)] = term.of(config);
  }
  for (const auto& [tensor, setting] : terms.present) {
    config[std::string(setting)] = find_tensor(file, tensor) != nullptr;
  }
  for (const auto& [tensor, setting] : terms.rows) {
    if (const TensorEntry* const found = find_tensor(file, tensor)) {
      config[std::string(setting)] = found->shape[0];
    }
  }
  BOWLINE_TRY_ASSIGN(const json count, keys.optional("vocab_size"));
  BOWLINE_REQUIRE_CODE(
      count.is_null() || !config.contains("vocab_size") || count == config["vocab_size"],
      Code::bad_file, "The key \"{}.vocab_size\" is {}, but \"token_embd.weight\" has {} rows.",
      terms.architecture, count.dump(), config["vocab_size"].dump());
  BOWLINE_TRY(add_tokens(file, config));
  return config;
}

}  // namespace bowline::gguf
