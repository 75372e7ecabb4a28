// Llama and related decoders that differ in biases and norms.
#pragma once

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

struct LlamaForm {
  bool qkv_bias = false;
  bool out_bias = false;
  bool feed_forward_bias = false;
  bool head_norms = false;  // of queries and keys
  // Defaults of missing config keys.
  double rms_eps = 1e-6;
  double rope_theta = 10000;
  int64_t head_dim = 0;  // 0: the width, divided by the heads
  std::string_view activation_key = "hidden_act";
  std::string_view activation = "silu";
  // Norms after attention and after the feed-forward part, too.
  bool out_norms = false;
  // The norms store gamma - 1.
  bool norm_offset = false;
  // (optional) True for layers with a sliding window, if "layer_types" is missing. Null: the
  // architecture has no sliding windows.
  bool (*is_windowed)(Fields& config, int64_t layer) = nullptr;
  bool uses_window = true;  // default of "use_sliding_window"
};

// Errors  unsupported: the rotation or activation of the config is not supported.
Result<DecoderParts> declare_llama(Weights& weights, Fields& config, const LlamaForm& form);

// LlamaForm::is_windowed for configs with "max_window_layers".
bool is_behind_first_layers(Fields& config, int64_t layer);

// Reads the rotation of a config, from the keys of transformers 4 (rope_theta, rope_scaling) or 5
// (rope_parameters).
Result<Rotation> rotation_of(Fields& config, double otherwise);

}  // namespace bowline::import
