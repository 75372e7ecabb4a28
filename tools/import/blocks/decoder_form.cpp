#include "blocks/decoder_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/escape.h"
#include "base/status.h"

namespace bowline::import {
namespace {

// Without "tie_word_embeddings" the head of most architectures is untied if the source has one.
Weight head_of(Weights& weights, Fields& config, const Weight& embedding, const DecoderForm& form,
               const std::vector<int64_t>& shape) {
  const std::string name = fmt::format("{}.weight", form.names.head);
  const std::string from = fmt::format("{}.weight", form.names.embedding);
  if (config.boolean_or("tie_word_embeddings", form.is_tied)) {
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
Result<std::vector<std::string>> types_of(Fields& config, const DecoderForm& form, int64_t layers) {
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
Result<int64_t> window_of(Fields& config, const DecoderForm& form, const DecoderSizes& sizes) {
  if (form.is_windowed == nullptr) {
    return int64_t{0};
  }
  const bool used = !form.uses_window || config.boolean_or("use_sliding_window", *form.uses_window);
  const int64_t stated =
      config.integer_or(form.window_key, 1, INT64_MAX, form.window == 0 ? INT64_MAX : form.window);
  BOWLINE_TRY(Status(config.status()));
  if (!used || config.is_null(form.window_key)) {
    return int64_t{0};
  }
  if (!form.is_bidirectional) {
    return stated < sizes.context ? stated : 0;
  }
  const int64_t side = stated / 2;
  BOWLINE_REQUIRE_CODE(side > 0, Code::unsupported,
                       "A window of one token (\"{}\") is not supported.", form.window_key);
  return side < sizes.context - 1 ? side : 0;
}

bool is_rotated(Fields& config, const DecoderForm& form, std::string_view type, int64_t layer) {
  const bool has_window = config.has(form.window_key) ? !config.is_null(form.window_key) : true;
  const bool is_windowed = has_window && type == "sliding_attention";
  const bool is_one_of_all = form.rotated == DecoderForm::Rotated::all ||
                             (form.rotated == DecoderForm::Rotated::windowed_or_all && !has_window);
  return (is_one_of_all || is_windowed) &&
         (form.is_rotary == nullptr || form.is_rotary(config, layer));
}

// The kind of each layer.
Result<std::vector<LayerKind>> kinds_of(Fields& config, const DecoderForm& form,
                                        const DecoderSizes& sizes) {
  BOWLINE_TRY_ASSIGN(const std::vector<std::string> types, types_of(config, form, sizes.layers));
  BOWLINE_TRY_ASSIGN(const int64_t window, window_of(config, form, sizes));
  std::map<std::string, Rotation> rotations;
  std::vector<LayerKind> out;
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const std::string& type = types[static_cast<size_t>(i)];
    if (form.rotated != DecoderForm::Rotated::none && !rotations.contains(type)) {
      BOWLINE_TRY_ASSIGN(rotations[type],
                         rotation_of(config, form.rotary, {sizes.head_dim, sizes.context}, type));
    }
    LayerKind& kind = out.emplace_back();
    kind.window = type == "sliding_attention" ? window : 0;
    if (form.rotated != DecoderForm::Rotated::none && is_rotated(config, form, type, i)) {
      kind.rotation = rotations[type];
    }
  }
  BOWLINE_TRY(Status(config.status()));
  return out;
}

// Reads the settings without tensors.
Result<DecoderParts> settings_of(Fields& config, const DecoderForm& form) {
  DecoderParts p;
  DecoderSizes& s = p.sizes;
  s.layers = config.integer(form.layers_key, 1, 4096);
  s.width = config.integer(form.width_key, 1, kMostSize);
  s.heads = config.integer(form.heads_key, 1, 65536);
  s.kv_heads = form.kv_heads != 0 ? form.kv_heads : s.heads;
  if (!form.kv_heads_key.empty()) {
    s.kv_heads = config.integer_or(form.kv_heads_key, 1, s.heads, s.kv_heads);
  }
  s.head_dim = form.head_dim != 0 ? form.head_dim : s.width / s.heads;
  if (!form.head_dim_key.empty()) {
    s.head_dim = config.integer_or(form.head_dim_key, 1, 65536, s.head_dim);
  }
  s.inner = form.inner_factor == 0
                ? config.integer(form.inner_key, 1, kMostSize)
                : config.integer_or(form.inner_key, 1, kMostSize, form.inner_factor * s.width);
  s.vocabulary = config.integer("vocab_size", 1, kMostSize);
  s.context = form.context == 0 ? config.integer(form.context_key, 1, kMostSize)
                                : config.integer_or(form.context_key, 1, kMostSize, form.context);
  const std::string activation = config.text_or(form.activation_key, std::string(form.activation));
  if (!form.embedding_dropout_key.empty()) {
    p.embedding_dropout =
        config.number_or(form.embedding_dropout_key, 0, 0.999, form.embedding_dropout);
  }
  if (!form.residual_dropout_key.empty()) {
    p.residual_dropout =
        config.number_or(form.residual_dropout_key, 0, 0.999, form.residual_dropout);
  }
  BOWLINE_TRY(Status(config.status()));
  BOWLINE_REQUIRE_CODE(!form.head_dim_key.empty() || s.width % s.heads == 0, Code::bad_file,
                       "The config has {} attention heads for a width of {}.", s.heads, s.width);
  const bool fits_pairs = form.rotated == DecoderForm::Rotated::none || s.head_dim % 2 == 0;
  BOWLINE_REQUIRE_CODE(s.heads % s.kv_heads == 0 && s.head_dim > 0 && fits_pairs, Code::bad_file,
                       "{} has {} attention heads over {} of keys and values, of {} channels each.",
                       config.what(), s.heads, s.kv_heads, s.head_dim);
  BOWLINE_TRY_ASSIGN(p.activation, activation_of(activation));
  BOWLINE_TRY_ASSIGN(std::vector<LayerKind> kinds, kinds_of(config, form, s));
  p.is_bidirectional = form.is_bidirectional;
  if (form.first_without_norm) {
    p.first = kinds.front();
    kinds.erase(kinds.begin());
  }
  if (!kinds.empty()) {
    p.kinds = repeated_part(kinds);
  }
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
class DecoderTensors {
 public:
  DecoderTensors(Weights& weights, const DecoderForm& form, const DecoderSizes& sizes, double eps)
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
    const bool input_first = form_.input_first;
    Linear made{list(name, "weight", input_first ? std::vector{in, out} : std::vector{out, in}),
                {},
                input_first};
    if (bias) {
      made.bias = list(name, "bias", {out});
    }
    return made;
  }
  // A norm in each layer from layer `first` on.
  Norm norm(std::string_view name, int64_t width, int64_t first = 0) const {
    Norm made{kind_, {}, {}, eps_};
    made.gamma = gamma_ ? repeated(*gamma_, sizes_.layers) : list(name, "weight", {width}, first);
    if (offset_) {
      made.offset = repeated(*offset_, sizes_.layers);
    }
    if (form_.layer_norms) {
      made.beta = beta_ ? repeated(*beta_, sizes_.layers) : list(name, "bias", {width}, first);
    }
    return made;
  }
  // A norm outside of the layers.
  Norm one_norm(std::string_view of) const {
    const std::string name(of);
    Norm made{kind_, {}, {}, eps_, offset_};
    made.gamma = gamma_ ? *gamma_ : weights_.one(name + ".weight", {sizes_.width});
    if (form_.layer_norms) {
      made.beta = beta_ ? *beta_ : weights_.one(name + ".bias", {sizes_.width});
    }
    return made;
  }

 private:
  Weight list(std::string_view name, const char* part, const std::vector<int64_t>& shape,
              int64_t first = 0) const {
    return weights_.list(fmt::format("{}.{{}}.{}.{}", form_.names.layers, name, part),
                         sizes_.layers, shape, first);
  }

  Weights& weights_;
  const DecoderForm& form_;
  const DecoderSizes& sizes_;
  Norm::Kind kind_;
  double eps_;
  std::optional<Weight> offset_;
  std::optional<Weight> gamma_;  // ones, if the norms have no weights
  std::optional<Weight> beta_;   // zeros, if the norms have no biases
};

// Declares the tables that are added to the embeddings of tokens.
void declare_positions(Weights& weights, const DecoderForm& form, DecoderParts& p) {
  const DecoderNames& names = form.names;
  const int64_t width = p.sizes.width;
  p.first_position = form.first_position;
  const int64_t rows = p.sizes.context + p.first_position;
  if (form.make_positions != nullptr) {
    p.positions = weights.table("positions", {rows, width}, form.make_positions(rows, width));
  } else if (!names.positions.empty()) {
    p.positions = weights.one(fmt::format("{}.weight", names.positions), {rows, width});
  }
  if (!names.types.empty()) {
    const std::string types = fmt::format("{}.weight", names.types);
    p.types = weights.one(types, {std::max<int64_t>(weights.rows_of(types), 1), width});
  }
}

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

DecoderForm gptj_form(Fields& config) {
  DecoderForm form = kGptForm;
  form.names.positions = {};
  form.names.q = "attn.q_proj";
  form.names.k = "attn.k_proj";
  form.names.v = "attn.v_proj";
  form.names.out = "attn.out_proj";
  form.names.up = "mlp.fc_in";
  form.names.down = "mlp.fc_out";
  form.qkv_bias = form.out_bias = form.fused_qkv = false;
  form.is_parallel = true;
  form.head_bias = true;
  form.is_tied = false;
  form.embedding_dropout = form.residual_dropout = 0;
  form.rotated = DecoderForm::Rotated::all;
  form.rotary.interleaved = true;
  if (!config.is_null("rotary_dim")) {
    form.rotary.dims = config.integer_or("rotary_dim", 1, 65536, 64);
  }
  return form;
}

Result<DecoderParts> declare_decoder(Weights& weights, Fields& config, const DecoderForm& form) {
  BOWLINE_TRY_ASSIGN(DecoderParts p, settings_of(config, form));
  const DecoderSizes& s = p.sizes;
  BOWLINE_TRY(add_rotations(weights, p));
  const auto is_scaled = [](const LayerKind& kind) {
    return kind.rotation && kind.rotation->attention_factor != 1;
  };
  BOWLINE_REQUIRE_CODE(!form.norms_rotated || std::ranges::none_of(p.kinds, is_scaled),
                       Code::unsupported,
                       "The config scales rotated channels, and the architecture normalizes them "
                       "afterwards, which is not supported.");
  const DecoderNames& names = form.names;
  const std::string head = fmt::format("{}.", names.head);
  weights.add_prefix(names.prefix, {head, "classifier.", names.class_head, "score."});
  weights.drop("*.rotary_emb.inv_freq", "frequencies are computed from the config");

  const DecoderTensors tensors(weights, form, s,
                               config.number_or(form.eps_key, 1e-12, 1, form.eps));
  const int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  p.embedding = weights.one(fmt::format("{}.weight", names.embedding), {s.vocabulary, s.width});
  declare_positions(weights, form, p);
  if (!names.embedding_norm.empty()) {
    p.embedding_norm = tensors.one_norm(names.embedding_norm);
  }
  const bool has_before =
      form.norms == DecoderForm::Norms::before || form.norms == DecoderForm::Norms::both;
  if (has_before) {
    p.attention_norm = tensors.norm(names.attention_norm, s.width, form.first_without_norm ? 1 : 0);
  }
  if (form.fused_qkv) {
    p.qkv = tensors.linear(names.qkv, q + 2 * kv, s.width, form.qkv_bias);
    p.qkv_groups = form.qkv_groups == 0 ? s.heads : form.qkv_groups;
    p.values_before_keys = form.values_before_keys;
  } else {
    p.q = tensors.linear(names.q, q, s.width, form.qkv_bias);
    p.k = tensors.linear(names.k, kv, s.width, form.qkv_bias);
    p.v = tensors.linear(names.v, kv, s.width, form.qkv_bias);
  }
  if (form.query_norms != DecoderForm::QueryNorms::none) {
    p.norms_all_heads = form.query_norms == DecoderForm::QueryNorms::all;
    p.q_norm = tensors.norm(names.q_norm, p.norms_all_heads ? q : s.head_dim);
    p.k_norm = tensors.norm(names.k_norm, p.norms_all_heads ? kv : s.head_dim);
    p.norms_rotated = form.norms_rotated;
  }
  p.out = tensors.linear(names.out, s.width, q, form.out_bias);
  p.is_parallel = form.is_parallel;
  if (form.norms != DecoderForm::Norms::before) {
    p.attention_out_norm = tensors.norm(names.attention_out_norm, s.width);
    p.feed_forward_out_norm = tensors.norm(names.feed_forward_out_norm, s.width);
  }
  p.norms_sums = form.norms == DecoderForm::Norms::sums;
  if (has_before && (!form.is_parallel || form.has_parallel_norms)) {
    p.feed_forward_norm = tensors.norm(names.feed_forward_norm, s.width);
  }
  if (form.fused_gate_up) {
    p.gate_up = tensors.linear(names.gate_up, 2 * s.inner, s.width, form.feed_forward_bias);
    p.up_before_gate = form.up_before_gate;
  } else {
    if (form.gated) {
      p.gate = tensors.linear(names.gate, s.inner, s.width, form.feed_forward_bias);
    }
    p.up = tensors.linear(names.up, s.inner, s.width, form.feed_forward_bias);
  }
  p.down = tensors.linear(names.down, s.width, s.inner, form.feed_forward_bias || form.down_bias);
  if (!names.final_norm.empty()) {
    p.final_norm = tensors.one_norm(names.final_norm);
  }
  if (!weights.generates()) {
    weights.drop(fmt::format("{}*", head), "the task does not use it");
    return p;
  }
  if (form.head_bias) {
    p.head_bias = weights.one(fmt::format("{}.bias", names.head), {s.vocabulary});
  }
  p.head = head_of(weights, config, p.embedding, form, {s.vocabulary, s.width});
  BOWLINE_TRY(Status(config.status()));
  return p;
}

}  // namespace bowline::import
