#include "blocks/llama_family.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/escape.h"
#include "base/status.h"

namespace bowline::import {
namespace {

// Keys of rope_scaling and rope_parameters.
// Source  transformers, modeling_rope_utils.py.
constexpr KeyRule kRotationKeys[] = {
    {"rope_theta rope_type type factor low_freq_factor high_freq_factor "
     "original_max_position_embeddings"},
    {"partial_rotary_factor", KeyUse::fixed, "[1, null]"},
};

// Without "tie_word_embeddings" the head is untied if the source has one; false is the default of
// Llama.
Weight head_of(Weights& weights, Fields& config, const Weight& embedding,
               const std::vector<int64_t>& shape) {
  const std::string name = "lm_head.weight", from = "model.embed_tokens.weight";
  if (config.boolean_or("tie_word_embeddings", false)) {
    return weights.tied(name, embedding, from, "\"tie_word_embeddings\" of the config");
  }
  if (weights.has(name)) {
    return weights.one(name, shape);
  }
  if (config.has("tie_word_embeddings")) {
    weights.fail(Code::bad_file,
                 "The config does not tie {} to {}, but the source has no {}. Set "
                 "\"tie_word_embeddings\" to true to tie it.",
                 name, from, name);
    return {};
  }
  return weights.tied(name, embedding, from, "the source has no separate head");
}

// Returns the shortest prefix that repeats through the whole list.
std::vector<int64_t> repeated_part(const std::vector<int64_t>& all) {
  for (size_t n = 1; n < all.size(); ++n) {
    const bool again = all.size() % n == 0 &&
                       std::equal(all.begin() + static_cast<ptrdiff_t>(n), all.end(), all.begin());
    if (again) {
      return {all.begin(), all.begin() + static_cast<ptrdiff_t>(n)};
    }
  }
  return all;
}

// Computes DecoderParts::windows. A window is ignored if it is null or at least as long as the
// context.
Result<std::vector<int64_t>> windows_of(Fields& config, const LlamaForm& form,
                                        const DecoderSizes& sizes) {
  if (form.is_windowed == nullptr) {
    return std::vector<int64_t>{0};
  }
  const bool used = config.boolean_or("use_sliding_window", form.uses_window);
  constexpr int64_t kWindow = 4096;  // default of "sliding_window"
  const int64_t stated = config.integer_or("sliding_window", 1, INT64_MAX, kWindow);
  const bool hides = used && !config.is_null("sliding_window") && stated < sizes.context;
  const int64_t window = hides ? stated : 0;
  const std::vector<std::string> types = config.texts("layer_types");
  BOWLINE_TRY(Status(config.status()));
  BOWLINE_REQUIRE_CODE(types.empty() || std::ssize(types) == sizes.layers, Code::bad_file,
                       "{} has {} layers, but \"layer_types\" has {} entries.", config.what(),
                       sizes.layers, types.size());
  std::vector<int64_t> out;
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const std::string type = !types.empty()                ? types[static_cast<size_t>(i)]
                             : form.is_windowed(config, i) ? "sliding_attention"
                                                           : "full_attention";
    BOWLINE_REQUIRE_CODE(type == "sliding_attention" || type == "full_attention", Code::unsupported,
                         "Layer {} has the type \"{}\", which is not supported. Supported: "
                         "full_attention, sliding_attention.",
                         i, escaped(type));
    out.push_back(type == "sliding_attention" ? window : 0);
  }
  BOWLINE_TRY(Status(config.status()));
  return repeated_part(out);
}

// The same parameter for every iteration.
Weight repeated(const Weight& weight, int64_t count) {
  const auto* const one = std::get_if<Parameter>(&weight.of);
  return one == nullptr ? weight
                        : Weight{ParameterList{{static_cast<size_t>(count), *one}}, weight.dtype};
}

// Reads the object `key` of the config. `otherwise` has the base of the config.
Result<Rotation> rotation_in(const char* key, const nlohmann::json& said,
                             const Rotation& otherwise) {
  Rotation r;
  Fields fields(fmt::format("\"{}\" of the config", key), said);
  r.base = fields.number_or("rope_theta", 1, 1e9, otherwise.base);
  const std::string type =
      fields.text_or("rope_type", fields.has("type") ? fields.text("type") : "default");
  if (type == "linear" || type == "llama3") {
    r.factor = fields.number("factor", 1, 1e6);
  }
  if (type == "llama3") {
    r.low_frequency_factor = fields.number("low_freq_factor", 1e-6, 1e6);
    r.high_frequency_factor = fields.number("high_freq_factor", 1e-6, 1e6);
    r.original_length = fields.integer("original_max_position_embeddings", 1, kMostSize);
  } else if (type == "linear") {  // every pair is scaled
    r.low_frequency_factor = static_cast<double>(r.original_length);
    r.high_frequency_factor = 2 * r.low_frequency_factor;
  } else if (type != "default") {
    return Status(Code::unsupported,
                  fmt::format("{} has the type \"{}\", which is not supported. Supported: default, "
                              "linear, llama3.",
                              fields.what(), escaped(type)));
  }
  BOWLINE_TRY(check_keys(fields.what(), said, {kRotationKeys}));
  BOWLINE_TRY(Status(fields.status()));
  return r;
}

}  // namespace

Result<Rotation> rotation_of(Fields& config, double otherwise) {
  Rotation without;
  without.base = config.number_or("rope_theta", 1, 1e9, otherwise);
  std::optional<Rotation> first;
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const nlohmann::json* said = config.object(key);
    BOWLINE_TRY(Status(config.status()));
    if (said == nullptr) {
      continue;
    }
    BOWLINE_TRY_ASSIGN(const Rotation r, rotation_in(key, *said, first.value_or(without)));
    BOWLINE_REQUIRE_CODE(!first || *first == r, Code::unsupported,
                         "\"rope_parameters\" and \"rope_scaling\" of {} define different "
                         "rotations. Remove the one that is wrong.",
                         config.what());
    first = r;
  }
  return first.value_or(without);
}

bool is_behind_first_layers(Fields& config, int64_t layer) {
  return layer >= config.integer_or("max_window_layers", 0, 4096, 28);
}

Result<DecoderParts> declare_llama(Weights& weights, Fields& config, const LlamaForm& form) {
  DecoderParts p;
  DecoderSizes& s = p.sizes;
  s.layers = config.integer("num_hidden_layers", 1, 4096);
  s.width = config.integer("hidden_size", 1, kMostSize);
  s.heads = config.integer("num_attention_heads", 1, 65536);
  s.kv_heads = config.integer_or("num_key_value_heads", 1, s.heads, s.heads);
  s.head_dim = config.integer_or("head_dim", 1, 65536,
                                 form.head_dim != 0 ? form.head_dim : s.width / s.heads);
  s.inner = config.integer("intermediate_size", 1, kMostSize);
  s.vocabulary = config.integer("vocab_size", 1, kMostSize);
  s.context = config.integer("max_position_embeddings", 1, kMostSize);
  const double eps = config.number_or("rms_norm_eps", 1e-12, 1, form.rms_eps);
  const std::string activation = config.text_or(form.activation_key, std::string(form.activation));
  BOWLINE_TRY(Status(config.status()));
  BOWLINE_REQUIRE_CODE(s.heads % s.kv_heads == 0 && s.head_dim > 0 && s.head_dim % 2 == 0,
                       Code::bad_file,
                       "{} has {} attention heads over {} of keys and values, of {} channels each.",
                       config.what(), s.heads, s.kv_heads, s.head_dim);
  BOWLINE_TRY_ASSIGN(p.activation, activation_of(activation));
  BOWLINE_TRY_ASSIGN(p.rotation, rotation_of(config, form.rope_theta));
  BOWLINE_TRY_ASSIGN(p.windows, windows_of(config, form, s));
  weights.add_prefix("model.", "lm_head.");
  weights.drop("model.layers.*.self_attn.rotary_emb.inv_freq",
               "frequencies are computed from the config");
  weights.drop("model.rotary_emb.inv_freq", "frequencies are computed from the config");

  const auto list = [&](const char* name, const char* part, std::vector<int64_t> shape) {
    return weights.list(fmt::format("model.layers.{{}}.{}.{}", name, part), s.layers, shape);
  };
  const auto linear = [&](const char* name, int64_t out, int64_t in, bool bias) {
    Linear made{list(name, "weight", {out, in}), {}};
    if (bias) {
      made.bias = list(name, "bias", {out});
    }
    return made;
  };
  std::optional<Weight> offset, offsets;
  if (form.norm_offset) {
    offset = weights.constant("norm_offset", 1);
    offsets = repeated(*offset, s.layers);
  }
  const auto norm = [&](const char* name, int64_t width) {
    return Norm{Norm::Kind::rms, list(name, "weight", {width}), {}, eps, offsets};
  };
  const int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  p.embedding = weights.one("model.embed_tokens.weight", {s.vocabulary, s.width});
  p.attention_norm = norm("input_layernorm", s.width);
  p.q = linear("self_attn.q_proj", q, s.width, form.qkv_bias);
  p.k = linear("self_attn.k_proj", kv, s.width, form.qkv_bias);
  p.v = linear("self_attn.v_proj", kv, s.width, form.qkv_bias);
  if (form.head_norms) {
    p.q_norm = norm("self_attn.q_norm", s.head_dim);
    p.k_norm = norm("self_attn.k_norm", s.head_dim);
  }
  p.out = linear("self_attn.o_proj", s.width, q, form.out_bias);
  if (form.out_norms) {
    p.attention_out_norm = norm("post_attention_layernorm", s.width);
    p.feed_forward_norm = norm("pre_feedforward_layernorm", s.width);
    p.feed_forward_out_norm = norm("post_feedforward_layernorm", s.width);
  } else {
    p.feed_forward_norm = norm("post_attention_layernorm", s.width);
  }
  p.gate = linear("mlp.gate_proj", s.inner, s.width, form.feed_forward_bias);
  p.up = linear("mlp.up_proj", s.inner, s.width, form.feed_forward_bias);
  p.down = linear("mlp.down_proj", s.width, s.inner, form.feed_forward_bias);
  p.final_norm = {Norm::Kind::rms, weights.one("model.norm.weight", {s.width}), {}, eps, offset};
  p.head = head_of(weights, config, p.embedding, {s.vocabulary, s.width});
  BOWLINE_TRY(Status(config.status()));
  return p;
}

}  // namespace bowline::import
