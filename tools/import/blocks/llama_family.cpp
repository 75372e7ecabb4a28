#include "blocks/llama_family.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/escape.h"
#include "base/status.h"

namespace bowline::import {
namespace {

// Without "tie_word_embeddings" the head of most architectures is untied if the source has one.
Weight head_of(Weights& weights, Fields& config, const Weight& embedding, bool is_tied,
               const std::vector<int64_t>& shape) {
  const std::string name = "lm_head.weight", from = "model.embed_tokens.weight";
  if (config.boolean_or("tie_word_embeddings", is_tied)) {
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
std::vector<LayerKind> repeated_part(const std::vector<LayerKind>& all) {
  for (size_t n = 1; n < all.size(); ++n) {
    const bool again = all.size() % n == 0 &&
                       std::equal(all.begin() + static_cast<ptrdiff_t>(n), all.end(), all.begin());
    if (again) {
      return {all.begin(), all.begin() + static_cast<ptrdiff_t>(n)};
    }
  }
  return all;
}

// The type of each layer: "full_attention" or "sliding_attention".
Result<std::vector<std::string>> types_of(Fields& config, const LlamaForm& form, int64_t layers) {
  std::vector<std::string> out(static_cast<size_t>(layers), "full_attention");
  if (form.is_windowed == nullptr) {
    return out;
  }
  const std::vector<std::string> types = config.texts("layer_types");
  BOWLINE_TRY(Status(config.status()));
  BOWLINE_REQUIRE_CODE(types.empty() || std::ssize(types) == layers, Code::bad_file,
                       "{} has {} layers, but \"layer_types\" has {} entries.", config.what(),
                       layers, types.size());
  for (int64_t i = 0; i < layers; ++i) {
    std::string& type = out[static_cast<size_t>(i)];
    if (!types.empty()) {
      type = types[static_cast<size_t>(i)];
    } else if (form.is_windowed(config, i)) {
      type = "sliding_attention";
    }
    BOWLINE_REQUIRE_CODE(type == "sliding_attention" || type == "full_attention", Code::unsupported,
                         "Layer {} has the type \"{}\", which is not supported. Supported: "
                         "full_attention, sliding_attention.",
                         i, escaped(type));
  }
  BOWLINE_TRY(Status(config.status()));
  return out;
}

// The sliding window of layers that have one. 0: it is null, or at least as long as the context.
Result<int64_t> window_of(Fields& config, const LlamaForm& form, const DecoderSizes& sizes) {
  if (form.is_windowed == nullptr) {
    return int64_t{0};
  }
  const bool used = !form.uses_window || config.boolean_or("use_sliding_window", *form.uses_window);
  const int64_t stated =
      config.integer_or("sliding_window", 1, INT64_MAX, form.window == 0 ? INT64_MAX : form.window);
  BOWLINE_TRY(Status(config.status()));
  const bool hides = used && !config.is_null("sliding_window") && stated < sizes.context;
  return hides ? stated : 0;
}

bool is_rotated(Fields& config, const LlamaForm& form, std::string_view type, int64_t layer) {
  const bool has_window = config.has("sliding_window") ? !config.is_null("sliding_window") : true;
  const bool is_windowed = has_window && type == "sliding_attention";
  const bool is_one_of_all = form.rotated == LlamaForm::Rotated::all ||
                             (form.rotated == LlamaForm::Rotated::windowed_or_all && !has_window);
  return (is_one_of_all || is_windowed) &&
         (form.is_rotary == nullptr || form.is_rotary(config, layer));
}

// Computes DecoderParts::kinds.
Result<std::vector<LayerKind>> kinds_of(Fields& config, const LlamaForm& form,
                                        const DecoderSizes& sizes) {
  BOWLINE_TRY_ASSIGN(const std::vector<std::string> types, types_of(config, form, sizes.layers));
  BOWLINE_TRY_ASSIGN(const int64_t window, window_of(config, form, sizes));
  std::map<std::string, Rotation> rotations;
  std::vector<LayerKind> out;
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const std::string& type = types[static_cast<size_t>(i)];
    if (!rotations.contains(type)) {
      BOWLINE_TRY_ASSIGN(rotations[type],
                         rotation_of(config, form.rotary, {sizes.head_dim, sizes.context}, type));
    }
    LayerKind& kind = out.emplace_back();
    kind.window = type == "sliding_attention" ? window : 0;
    if (is_rotated(config, form, type, i)) {
      kind.rotation = rotations[type];
    }
  }
  BOWLINE_TRY(Status(config.status()));
  return repeated_part(out);
}

// Reads the settings without tensors.
Result<DecoderParts> settings_of(Fields& config, const LlamaForm& form) {
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
  const std::string activation = config.text_or(form.activation_key, std::string(form.activation));
  if (!form.embedding_dropout_key.empty()) {
    p.embedding_dropout = config.number_or(form.embedding_dropout_key, 0, 0.999, 0);
  }
  if (!form.residual_dropout_key.empty()) {
    p.residual_dropout =
        config.number_or(form.residual_dropout_key, 0, 0.999, form.residual_dropout);
  }
  BOWLINE_TRY(Status(config.status()));
  BOWLINE_REQUIRE_CODE(s.heads % s.kv_heads == 0 && s.head_dim > 0 && s.head_dim % 2 == 0,
                       Code::bad_file,
                       "{} has {} attention heads over {} of keys and values, of {} channels each.",
                       config.what(), s.heads, s.kv_heads, s.head_dim);
  BOWLINE_TRY_ASSIGN(p.activation, activation_of(activation));
  BOWLINE_TRY_ASSIGN(p.kinds, kinds_of(config, form, s));
  return p;
}

// Makes the constants that the rotations need, and limits the context to texts whose rotation does
// not depend on their length.
Status add_rotations(Weights& weights, DecoderParts& p) {
  double factor = 1;
  for (const LayerKind& kind : p.kinds) {
    if (!kind.rotation) {
      continue;
    }
    const Rotation& r = *kind.rotation;
    if (r.limit > 0 && r.limit <= p.sizes.context) {
      weights.note(
          fmt::format("The config treats the positions of longer texts in another way (\"{}\"). "
                      "The model supports texts of up to {} tokens, its context length.",
                      r.kind, r.limit));
      p.sizes.context = r.limit;
    }
    if (r.attention_factor == 1 || r.scales_all()) {
      continue;
    }
    BOWLINE_REQUIRE_CODE(factor == 1 || factor == r.attention_factor, Code::unsupported,
                         "Layers rotate a part of their channels with two attention factors ({} "
                         "and {}), which is not supported.",
                         factor, r.attention_factor);
    factor = r.attention_factor;
    std::vector<float> factors(static_cast<size_t>(p.sizes.head_dim), 1.0f);
    std::fill_n(factors.begin(), r.dims, static_cast<float>(factor * factor));
    if (!p.query_factors) {
      p.query_factors =
          repeated(weights.constant("query_factors", std::move(factors)), p.sizes.layers);
    }
  }
  return {};
}

// Declares the products and norms of a model.
class LlamaTensors {
 public:
  LlamaTensors(Weights& weights, const LlamaForm& form, const DecoderSizes& sizes, double eps)
      : weights_(weights),
        form_(form),
        sizes_(sizes),
        kind_(form.layer_norms ? Norm::Kind::layer : Norm::Kind::rms),
        eps_(eps) {
    if (form.norm_offset) {
      offset_ = weights.constant("norm_offset", 1);
    }
    const auto width = static_cast<size_t>(sizes.width);
    if (!form.norm_weights) {
      gamma_ = weights.constant("norm_weight", std::vector<float>(width, 1.0f));
    }
    if (form.layer_norms && !form.norm_bias) {
      beta_ = weights.constant("norm_bias", std::vector<float>(width));
    }
  }

  Linear linear(std::string_view name, int64_t out, int64_t in, bool bias) const {
    Linear made{list(name, "weight", {out, in}), {}};
    if (bias) {
      made.bias = list(name, "bias", {out});
    }
    return made;
  }
  // A norm in each layer.
  Norm norm(std::string_view name, int64_t width) const {
    Norm made{kind_, {}, {}, eps_};
    made.gamma = gamma_ ? repeated(*gamma_, sizes_.layers) : list(name, "weight", {width});
    if (offset_) {
      made.offset = repeated(*offset_, sizes_.layers);
    }
    if (form_.layer_norms) {
      made.beta = beta_ ? repeated(*beta_, sizes_.layers) : list(name, "bias", {width});
    }
    return made;
  }
  Norm final_norm() const {
    const std::string name(form_.names.final_norm);
    Norm made{kind_, {}, {}, eps_, offset_};
    made.gamma = gamma_ ? *gamma_ : weights_.one(name + ".weight", {sizes_.width});
    if (form_.layer_norms) {
      made.beta = beta_ ? *beta_ : weights_.one(name + ".bias", {sizes_.width});
    }
    return made;
  }

 private:
  Weight list(std::string_view name, const char* part, const std::vector<int64_t>& shape) const {
    return weights_.list(fmt::format("model.layers.{{}}.{}.{}", name, part), sizes_.layers, shape);
  }

  Weights& weights_;
  const LlamaForm& form_;
  const DecoderSizes& sizes_;
  Norm::Kind kind_;
  double eps_;
  std::optional<Weight> offset_;
  std::optional<Weight> gamma_;  // ones, if the norms have no weights
  std::optional<Weight> beta_;   // zeros, if the norms have no biases
};

}  // namespace

Weight repeated(const Weight& constant, int64_t layers) {
  const auto* const one = std::get_if<Parameter>(&constant.of);
  return one == nullptr
             ? constant
             : Weight{ParameterList{{static_cast<size_t>(layers), *one}}, constant.dtype};
}

double softcap_of(Fields& config, const char* key, double otherwise) {
  return config.number_or(key, 1e-3, 1e6, config.is_null(key) ? 0 : otherwise);
}

void add_gemma_factors(Weights& weights, Fields& config, DecoderParts& parts,
                       double logit_softcap) {
  parts.embedding_scale =
      weights.constant("embedding_scale", std::sqrt(static_cast<double>(parts.sizes.width)));
  parts.attention_scale = 1 / std::sqrt(config.number_or("query_pre_attn_scalar", 1e-3, 1e6, 256));
  const double cap = softcap_of(config, "final_logit_softcapping", logit_softcap);
  if (cap != 0) {
    parts.logit_softcap = weights.constant("logit_softcap", cap);
  }
}

bool is_behind_first_layers(Fields& config, int64_t layer) {
  return layer >= config.integer_or("max_window_layers", 0, 4096, 28);
}

Result<DecoderParts> declare_llama(Weights& weights, Fields& config, const LlamaForm& form) {
  BOWLINE_TRY_ASSIGN(DecoderParts p, settings_of(config, form));
  const DecoderSizes& s = p.sizes;
  BOWLINE_TRY(add_rotations(weights, p));
  weights.add_prefix("model.", "lm_head.");
  weights.drop("model.layers.*.self_attn.rotary_emb.inv_freq",
               "frequencies are computed from the config");
  weights.drop("model.rotary_emb.inv_freq", "frequencies are computed from the config");

  const LlamaTensors tensors(weights, form, s, config.number_or(form.eps_key, 1e-12, 1, form.eps));
  const int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  p.embedding = weights.one("model.embed_tokens.weight", {s.vocabulary, s.width});
  if (form.norms != LlamaForm::Norms::behind) {
    p.attention_norm = tensors.norm("input_layernorm", s.width);
  }
  if (form.fused_qkv) {
    p.qkv = tensors.linear("self_attn.qkv_proj", q + 2 * kv, s.width, form.qkv_bias);
  } else {
    p.q = tensors.linear("self_attn.q_proj", q, s.width, form.qkv_bias);
    p.k = tensors.linear("self_attn.k_proj", kv, s.width, form.qkv_bias);
    p.v = tensors.linear("self_attn.v_proj", kv, s.width, form.qkv_bias);
  }
  if (form.query_norms != LlamaForm::QueryNorms::none) {
    p.norms_all_heads = form.query_norms == LlamaForm::QueryNorms::all;
    p.q_norm = tensors.norm("self_attn.q_norm", p.norms_all_heads ? q : s.head_dim);
    p.k_norm = tensors.norm("self_attn.k_norm", p.norms_all_heads ? kv : s.head_dim);
  }
  p.out = tensors.linear(form.names.out, s.width, q, form.out_bias);
  p.is_parallel = form.is_parallel;
  if (form.norms == LlamaForm::Norms::before) {
    if (!form.is_parallel) {
      p.feed_forward_norm = tensors.norm("post_attention_layernorm", s.width);
    }
  } else {
    p.attention_out_norm = tensors.norm(form.names.attention_out_norm, s.width);
    p.feed_forward_out_norm = tensors.norm(form.names.feed_forward_out_norm, s.width);
  }
  if (form.norms == LlamaForm::Norms::both) {
    p.feed_forward_norm = tensors.norm(form.names.feed_forward_norm, s.width);
  }
  if (form.fused_gate_up) {
    p.gate_up = tensors.linear("mlp.gate_up_proj", 2 * s.inner, s.width, form.feed_forward_bias);
  } else {
    if (form.gated) {
      p.gate = tensors.linear("mlp.gate_proj", s.inner, s.width, form.feed_forward_bias);
    }
    p.up = tensors.linear(form.names.up, s.inner, s.width, form.feed_forward_bias);
  }
  p.down = tensors.linear(form.names.down, s.width, s.inner, form.feed_forward_bias);
  p.final_norm = tensors.final_norm();
  if (form.head_bias) {
    p.head_bias = weights.one("lm_head.bias", {s.vocabulary});
  }
  p.head = head_of(weights, config, p.embedding, form.is_tied, {s.vocabulary, s.width});
  BOWLINE_TRY(Status(config.status()));
  return p;
}

}  // namespace bowline::import
