// Llama and related decoders. LlamaForm says how one differs: in names, biases, norms, windows,
// rotation and the feed-forward part.
#pragma once

#include <optional>

#include "blocks/decoder.h"
#include "source/json.h"
#include "source/keys.h"

namespace bowline::import {

// Keys of config.json that all models of the family have.
// Source  transformers, configuration_llama.py and modeling_rope_utils.py, 4 and 5.
inline constexpr KeyRule kLlamaFamilyKeys[] = {
    {"architectures", KeyUse::harmless},  // a decoder has only the language model head
    {"num_hidden_layers hidden_size num_attention_heads num_key_value_heads head_dim "
     "intermediate_size max_position_embeddings rms_norm_eps tie_word_embeddings rope_theta "
     "rope_scaling rope_parameters hidden_act"},
    {"attention_dropout", KeyUse::harmless},  // --dropout ignores it
    {"pretraining_tp", KeyUse::harmless},     // splits products without changing the result
    {"is_causal", KeyUse::fixed, "[true]"},
    {"is_decoder", KeyUse::fixed, "[true, false, null]"},
    {"partial_rotary_factor", KeyUse::fixed, "[1, null]"},
};

// Names of tensors that differ between architectures, without ".weight" and ".bias". Those of parts
// of a layer follow "model.layers.N.".
struct LlamaNames {
  std::string_view out = "self_attn.o_proj";
  std::string_view up = "mlp.up_proj", down = "mlp.down_proj";
  // Of norms behind a part. Without those, "post_attention_layernorm" is the norm before the
  // feed-forward part.
  std::string_view attention_out_norm = "post_attention_layernorm";
  std::string_view feed_forward_out_norm = "post_feedforward_layernorm";
  // If each part has norms before and behind it.
  std::string_view feed_forward_norm = "pre_feedforward_layernorm";
  std::string_view final_norm = "model.norm";
};

struct LlamaForm {
  LlamaNames names = {};
  bool qkv_bias = false;
  bool out_bias = false;
  bool feed_forward_bias = false;
  // Norms of queries and keys: of each head, or of all heads together.
  enum class QueryNorms : uint8_t { none, heads, all } query_norms = QueryNorms::none;
  // Norms before attention and before the feed-forward part, behind each of them, or both.
  enum class Norms : uint8_t { before, behind, both } norms = Norms::before;
  // Attention and feed-forward part read the same normalized rows.
  bool is_parallel = false;
  bool fused_qkv = false;      // qkv_proj
  bool fused_gate_up = false;  // gate_up_proj
  bool gated = true;           // false: the feed-forward part activates `up`
  bool layer_norms = false;    // instead of RMS norms
  bool norm_weights = true;    // false: all norms multiply by 1
  bool norm_bias = true;       // of layer norms
  bool norm_offset = false;    // the norms store gamma - 1
  bool head_bias = false;
  // Keys, and defaults of missing keys. An empty key: the config has none.
  std::string_view eps_key = "rms_norm_eps";
  double eps = 1e-6;
  int64_t head_dim = 0;  // 0: the width, divided by the heads
  std::string_view activation_key = "hidden_act";
  std::string_view activation = "silu";
  bool is_tied = false;
  // Keys of dropout rates of the training. An empty key: the config has none. If the config lacks
  // the second key, its rate is `residual_dropout`.
  std::string_view embedding_dropout_key = {}, residual_dropout_key = {};
  double residual_dropout = 0;
  RotaryForm rotary = {};
  // Layers with rotary positions: all; those of the type "sliding_attention"; or the same, but all
  // if "sliding_window" is null. If it is null, `windowed` rotates none.
  enum class Rotated : uint8_t { all, windowed, windowed_or_all } rotated = Rotated::all;
  // (optional) False for layers without rotary positions, among those that `rotated` selects.
  bool (*is_rotary)(Fields& config, int64_t layer) = nullptr;
  // (optional) True for layers with a sliding window, if "layer_types" is missing. Null: the
  // architecture has no sliding windows.
  bool (*is_windowed)(Fields& config, int64_t layer) = nullptr;
  // (optional) Default of "use_sliding_window". Empty: the architecture does not have the key.
  std::optional<bool> uses_window = {};
  int64_t window = 4096;  // default of "sliding_window"; 0: none
};

// Errors  bad_file: a value or tensor is missing or malformed.
//         unsupported: the type of a layer, the rotation or the activation is not supported.
Result<DecoderParts> declare_llama(Weights& weights, Fields& config, const LlamaForm& form);

// LlamaForm::is_windowed for architectures in which every layer has the window.
inline bool is_every_layer(Fields&, int64_t) { return true; }
// LlamaForm::is_windowed: false for every n-th layer. n is "sliding_window_pattern", or `otherwise`
// if the key is missing.
template <int64_t otherwise>
bool is_before_nth(Fields& config, int64_t layer) {
  return (layer + 1) % config.integer_or("sliding_window_pattern", 1, kMostSize, otherwise) != 0;
}
// LlamaForm::is_windowed for configs with "max_window_layers".
bool is_behind_first_layers(Fields& config, int64_t layer);

// The constant in each layer.
Weight repeated(const Weight& constant, int64_t layers);

// Adds the factors of embeddings and scores of Gemma 2 and 3, and the cap of the logits.
// `logit_softcap` is the cap if the config has none.
void add_gemma_factors(Weights& weights, Fields& config, DecoderParts& parts, double logit_softcap);

// Reads a cap of logits or scores. Null means no cap (0); `otherwise` is for a missing key.
double softcap_of(Fields& config, const char* key, double otherwise);

}  // namespace bowline::import
