// Persimmon: a Llama with layer norms, biases, rotations of a part of each head, and norms of
// queries and keys. Each head has its rows of a fused product for queries, keys and values.
//
// Source  transformers, models/persimmon/modeling_persimmon.py.
#include "base/status.h"
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_persimmon(Weights& weights, Fields& config) {
  const bool has_norms = config.boolean_or("qk_layernorm", true);
  BOWLINE_TRY_ASSIGN(DecoderParts p,
                     declare_decoder(weights, config,
                                     {.names = {.qkv = "self_attn.query_key_value",
                                                .q_norm = "self_attn.q_layernorm",
                                                .k_norm = "self_attn.k_layernorm",
                                                .out = "self_attn.dense",
                                                .up = "mlp.dense_h_to_4h",
                                                .down = "mlp.dense_4h_to_h",
                                                .final_norm = "model.final_layernorm"},
                                      .qkv_bias = true,
                                      .out_bias = true,
                                      .feed_forward_bias = true,
                                      .query_norms = has_norms ? DecoderForm::QueryNorms::heads
                                                               : DecoderForm::QueryNorms::none,
                                      .fused_qkv = true,
                                      .qkv_groups = 0,
                                      .gated = false,
                                      .layer_norms = true,
                                      .eps_key = "layer_norm_eps",
                                      .eps = 1e-5,
                                      .head_dim_key = {},
                                      .activation = "relu2",
                                      .rotary = {.partial = 0.5}}));
  BOWLINE_REQUIRE_CODE(
      p.sizes.kv_heads == p.sizes.heads, Code::unsupported,
      "The config has {} heads of keys and values for {} attention heads, which is "
      "not supported (\"num_key_value_heads\").",
      p.sizes.kv_heads, p.sizes.heads);
  return p;
}

// Source  transformers, configuration_persimmon.py.
constexpr KeyRule kPersimmonKeys[] = {
    {"qk_layernorm layer_norm_eps partial_rotary_factor"},
    {"hidden_dropout", KeyUse::fixed, "[0, null]"},  // only of one part of a layer
    {"head_dim", KeyUse::fixed},
    {"rms_norm_eps", KeyUse::harmless},
};

constexpr Architecture kPersimmonArchitectures[] = {
    {"persimmon", build_decoder<declare_persimmon>, {{kPersimmonKeys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_persimmon() { return kPersimmonArchitectures; }

}  // namespace bowline::import
