// GPT-NeoX (Pythia): a Llama with layer norms, biases, rotations of a part of each head, and
// attention and feed-forward part side by side. Each head has its rows of a fused product for
// queries, keys and values.
//
// Source  transformers, models/gpt_neox/modeling_gpt_neox.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_gpt_neox(Weights& weights, Fields& config) {
  weights.drop("*.attention.bias", "the causal mask is computed");
  weights.drop("*.attention.masked_bias", "the causal mask is computed");
  const bool bias = config.boolean_or("attention_bias", true);
  const bool is_parallel = config.boolean_or("use_parallel_residual", true);
  return declare_decoder(weights, config,
                         {.names = {.prefix = "gpt_neox.",
                                    .embedding = "gpt_neox.embed_in",
                                    .layers = "gpt_neox.layers",
                                    .qkv = "attention.query_key_value",
                                    .out = "attention.dense",
                                    .up = "mlp.dense_h_to_4h",
                                    .down = "mlp.dense_4h_to_h",
                                    .final_norm = "gpt_neox.final_layer_norm",
                                    .head = "embed_out"},
                          .qkv_bias = bias,
                          .out_bias = bias,
                          .feed_forward_bias = true,
                          .is_parallel = is_parallel,
                          .has_parallel_norms = is_parallel,
                          .fused_qkv = true,
                          .qkv_groups = 0,
                          .gated = false,
                          .layer_norms = true,
                          .kv_heads_key = {},
                          .eps_key = "layer_norm_eps",
                          .eps = 1e-5,
                          .head_dim_key = {},
                          .activation = "gelu",
                          .embedding_dropout_key = "hidden_dropout",
                          .residual_dropout_key = "hidden_dropout",
                          .rotary = {.older_theta_key = "rotary_emb_base",
                                     .older_partial_key = "rotary_pct",
                                     .partial = 0.25}});
}

// Source  transformers, configuration_gpt_neox.py.
constexpr KeyRule kGptNeoxKeys[] = {
    {"attention_bias use_parallel_residual layer_norm_eps hidden_dropout rotary_emb_base "
     "rotary_pct partial_rotary_factor"},
    {"num_key_value_heads head_dim", KeyUse::fixed},
    {"rms_norm_eps classifier_dropout", KeyUse::harmless},
};

constexpr Architecture kGptNeoxArchitectures[] = {
    {"gpt_neox", build_decoder<declare_gpt_neox>, {{kGptNeoxKeys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_gpt_neox() { return kGptNeoxArchitectures; }

}  // namespace bowline::import
