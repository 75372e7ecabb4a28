// Gemma 3, text models: a Gemma 2 with norms of queries and keys, and another rotary base in layers
// with a sliding window.
//
// Source  transformers, models/gemma3/modeling_gemma3.py; Gemma Team, "Gemma 3", 2025, section 2.
#include "base/status.h"
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_gemma3(Weights& weights, Fields& config) {
  const bool bias = config.boolean_or("attention_bias", false);
  BOWLINE_TRY_ASSIGN(
      DecoderParts p,
      declare_decoder(weights, config,
                      {.names = {.feed_forward_norm = "pre_feedforward_layernorm"},
                       .qkv_bias = bias,
                       .out_bias = bias,
                       .query_norms = DecoderForm::QueryNorms::heads,
                       .norms = DecoderForm::Norms::both,
                       .norm_offset = true,
                       .head_dim = 256,
                       .activation_key = "hidden_activation",
                       .activation = "gelu_pytorch_tanh",
                       .is_tied = true,
                       .rotary = {.theta = 1e6, .local_theta_key = "rope_local_base_freq"},
                       .is_windowed = is_before_nth<6>}));
  add_gemma_factors(weights, config, p, 0);
  BOWLINE_TRY(Status(config.status()));
  return p;
}

// Source  transformers, configuration_gemma3.py.
constexpr KeyRule kGemma3Keys[] = {
    {"hidden_activation"},
    {"hidden_act", KeyUse::harmless},
    {"attention_bias query_pre_attn_scalar sliding_window layer_types sliding_window_pattern "
     "rope_local_base_freq final_logit_softcapping"},
    {"attn_logit_softcapping", KeyUse::fixed, "[null]"},  // transformers reads it, but caps nothing
    {"use_bidirectional_attention", KeyUse::fixed, "[false, null]"},
    {"cache_implementation _sliding_window_pattern", KeyUse::harmless},
};

constexpr Architecture kGemma3Architectures[] = {
    {"gemma3_text", build_decoder<declare_gemma3>, {{kGemma3Keys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_gemma3() { return kGemma3Architectures; }

}  // namespace bowline::import
