// Declares the tensors of a decoder, or of an encoder with the parts of a decoder. DecoderForm says
// how its architecture differs from Llama: in names, keys, biases, norms, windows, positions and
// the feed-forward part.
#pragma once

#include <optional>

#include "blocks/decoder.h"
#include "source/json.h"
#include "source/keys.h"

namespace bowline::import {

// Keys of config.json that all models of the family have.
// Source  transformers, configuration_llama.py and modeling_rope_utils.py, 4 and 5.
inline constexpr KeyRule kLlamaFamilyKeys[] = {
    {"architectures", KeyUse::harmless},  // tells the kind of a head, if there is one
    {"num_hidden_layers hidden_size num_attention_heads num_key_value_heads head_dim "
     "intermediate_size max_position_embeddings rms_norm_eps tie_word_embeddings rope_theta "
     "rope_scaling rope_parameters hidden_act"},
    {"attention_dropout", KeyUse::harmless},  // --dropout ignores it
    {"pretraining_tp", KeyUse::harmless},     // splits products without changing the result
    {"is_causal", KeyUse::fixed, "[true]"},
    {"is_decoder", KeyUse::harmless},
    {"partial_rotary_factor", KeyUse::fixed, "[1, null]"},
};

// Keys of config.json that GPT-2 and related models have, and the causal mask.
// Source  transformers, configuration_gpt2.py and configuration_gptj.py.
inline constexpr KeyRule kGptFamilyKeys[] = {
    {"architectures", KeyUse::harmless},  // tells the kind of a head, if there is one
    {"n_layer n_embd n_head n_inner n_positions layer_norm_epsilon activation_function embd_pdrop "
     "resid_pdrop tie_word_embeddings"},
    {"attn_pdrop", KeyUse::harmless},  // --dropout ignores it
    {"scale_attn_weights", KeyUse::fixed, "[true]"},
    {"is_causal", KeyUse::fixed, "[true]"},
    {"n_ctx n_special predict_special_tokens summary_type summary_use_proj summary_activation "
     "summary_proj_to_labels summary_first_dropout summary_last_dropout",
     KeyUse::harmless},
};

// Names of tensors, without ".weight" and ".bias".
struct DecoderNames {
  // Prefix of all tensors outside of the heads. A file of the base model, which has no head, omits
  // it; the import then adds it.
  std::string_view prefix = "model.";
  std::string_view embedding = "model.embed_tokens";
  std::string_view positions = {};       // learned positions; empty: none
  std::string_view types = {};           // embeddings of token types; empty: none
  std::string_view embedding_norm = {};  // empty: none
  // The names of parts of a layer follow "<layers>.N.".
  std::string_view layers = "model.layers";
  std::string_view attention_norm = "input_layernorm";
  std::string_view q = "self_attn.q_proj", k = "self_attn.k_proj", v = "self_attn.v_proj";
  std::string_view qkv = "self_attn.qkv_proj";
  std::string_view q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm";
  std::string_view out = "self_attn.o_proj";
  std::string_view attention_out_norm = "post_attention_layernorm";
  std::string_view feed_forward_norm = "post_attention_layernorm";
  std::string_view gate_up = "mlp.gate_up_proj";
  std::string_view gate = "mlp.gate_proj", up = "mlp.up_proj", down = "mlp.down_proj";
  std::string_view feed_forward_out_norm = "post_feedforward_layernorm";
  std::string_view final_norm = "model.norm";  // empty: none
  std::string_view head = "lm_head";
  std::string_view class_head = "head.";  // prefix of a classification head
};

struct DecoderForm {
  DecoderNames names = {};
  bool is_bidirectional = false;    // see DecoderParts
  bool first_without_norm = false;  // DecoderParts::first
  bool qkv_bias = false;
  bool out_bias = false;
  bool feed_forward_bias = false;
  bool down_bias = false;  // like feed_forward_bias, but only of the last product
  // Norms of queries and keys: of each head, or of all heads together.
  enum class QueryNorms : uint8_t { none, heads, all } query_norms = QueryNorms::none;
  bool norms_rotated = false;  // the norms come after the rotation
  // Norms before attention and before the feed-forward part, behind each of them, or both; or of
  // the sum of input and output of each part.
  enum class Norms : uint8_t { before, behind, both, sums } norms = Norms::before;
  // Attention and feed-forward part read the same rows, and both outputs are added.
  bool is_parallel = false;
  bool has_parallel_norms = false;  // each of them has its own norm; false: they share one
  bool fused_qkv = false;
  // See DecoderParts. 0: a group per head.
  int64_t qkv_groups = 1;
  bool values_before_keys = false;
  bool fused_gate_up = false;
  bool up_before_gate = false;
  bool gated = true;         // false: the feed-forward part activates `up`
  bool layer_norms = false;  // instead of RMS norms
  bool norm_weights = true;  // false: all norms multiply by 1
  bool norm_bias = true;     // of layer norms
  bool norm_offset = false;  // the norms store gamma - 1
  bool head_bias = false;
  bool input_first = false;    // weights of the layers are [in, out]
  int64_t first_position = 0;  // row of the first token in the table of positions
  // (optional) Makes the table of positions [rows, width], which the source does not have.
  std::vector<float> (*make_positions)(int64_t rows, int64_t width) = nullptr;
  // Keys, and defaults of missing keys. An empty key: the config has none.
  std::string_view layers_key = "num_hidden_layers", width_key = "hidden_size";
  std::string_view heads_key = "num_attention_heads";
  std::string_view kv_heads_key = "num_key_value_heads";
  int64_t kv_heads = 0;  // without a key; 0: as many as heads
  std::string_view inner_key = "intermediate_size";
  int64_t inner_factor = 0;  // default: this factor of the width; 0: the key must be there
  std::string_view context_key = "max_position_embeddings";
  int64_t context = 0;  // its default; 0: the key must be there
  std::string_view eps_key = "rms_norm_eps";
  double eps = 1e-6;
  std::string_view head_dim_key = "head_dim";
  int64_t head_dim = 0;  // 0: the width, divided by the heads
  std::string_view activation_key = "hidden_act";
  std::string_view activation = "silu";
  bool is_tied = false;
  // Dropout rates of the training: keys, and defaults of missing keys. The first two keys can be
  // the same. See DecoderParts.
  std::string_view embedding_dropout_key = {}, residual_dropout_key = {};
  double embedding_dropout = 0, residual_dropout = 0;
  RotaryForm rotary = {};
  // Which layers rotate queries and keys.
  enum class Rotated : uint8_t {
    none,             // no layer
    all,              // every layer
    windowed,         // those of the type "sliding_attention"; none if "sliding_window" is null
    windowed_or_all,  // the same, but every layer if "sliding_window" is null
  } rotated = Rotated::all;
  // (optional) False for layers without rotary positions, among those that `rotated` selects.
  bool (*is_rotary)(Fields& config, int64_t layer) = nullptr;
  // (optional) Says which layers have a sliding window if the config has no "layer_types". A null
  // function: the architecture has no sliding windows.
  bool (*is_windowed)(Fields& config, int64_t layer) = nullptr;
  // (optional) Default of "use_sliding_window". Empty: the architecture does not have the key.
  std::optional<bool> uses_window = {};
  // Of a bidirectional model, the key counts both sides; LayerKind::window counts one.
  std::string_view window_key = "sliding_window";
  int64_t window = 4096;  // if the key is missing; 0: no window
};

// The form of GPT-2 and models with its keys and names: learned positions, layer norms with biases,
// a fused product for queries, keys and values, and a feed-forward part without a gate.
inline constexpr DecoderForm kGptForm = {
    .names = {.prefix = "transformer.",
              .embedding = "transformer.wte",
              .positions = "transformer.wpe",
              .layers = "transformer.h",
              .attention_norm = "ln_1",
              .qkv = "attn.c_attn",
              .out = "attn.c_proj",
              .feed_forward_norm = "ln_2",
              .up = "mlp.c_fc",
              .down = "mlp.c_proj",
              .final_norm = "transformer.ln_f"},
    .qkv_bias = true,
    .out_bias = true,
    .feed_forward_bias = true,
    .fused_qkv = true,
    .gated = false,
    .layer_norms = true,
    .layers_key = "n_layer",
    .width_key = "n_embd",
    .heads_key = "n_head",
    .kv_heads_key = {},
    .inner_key = "n_inner",
    .inner_factor = 4,
    .context_key = "n_positions",
    .eps_key = "layer_norm_epsilon",
    .eps = 1e-5,
    .head_dim_key = {},
    .activation_key = "activation_function",
    .activation = "gelu_new",
    .is_tied = true,
    .embedding_dropout_key = "embd_pdrop",
    .residual_dropout_key = "resid_pdrop",
    .embedding_dropout = 0.1,
    .residual_dropout = 0.1,
    .rotated = DecoderForm::Rotated::none,
};

// The form of GPT-J, with keys of GPT-2. Source: transformers, models/gptj/modeling_gptj.py.
DecoderForm gptj_form(Fields& config);

// Errors  bad_file: a value or tensor is missing or malformed.
//         unsupported: the type of a layer, the rotation or the activation is not supported.
Result<DecoderParts> declare_decoder(Weights& weights, Fields& config, const DecoderForm& form);

// DecoderForm::is_windowed for architectures in which every layer has the window.
inline bool is_every_layer(Fields&, int64_t) { return true; }
// DecoderForm::is_windowed: false for every n-th layer. n is "sliding_window_pattern", or
// `otherwise` if the key is missing.
template <int64_t otherwise>
bool is_before_nth(Fields& config, int64_t layer) {
  return (layer + 1) % config.integer_or("sliding_window_pattern", 1, kMostSize, otherwise) != 0;
}
// DecoderForm::is_windowed for configs with "max_window_layers".
bool is_behind_first_layers(Fields& config, int64_t layer);

// The constant in each layer.
Weight repeated(const Weight& constant, int64_t layers);

// Adds the factors of embeddings and scores of Gemma 2 and 3, and the cap of the logits.
// `logit_softcap` is the cap if the config has none.
void add_gemma_factors(Weights& weights, Fields& config, DecoderParts& parts, double logit_softcap);

// Reads a cap of logits or scores. Null means no cap (0); `otherwise` is for a missing key.
double softcap_of(Fields& config, const char* key, double otherwise);

}  // namespace bowline::import
