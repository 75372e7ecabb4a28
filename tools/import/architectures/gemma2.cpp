// Gemma 2: a Llama with norms before and after each part, gammas stored minus 1, soft-capping of
// scores and logits, and a sliding window in every other layer.
//
// Source  transformers, models/gemma2/modeling_gemma2.py; Gemma Team, "Gemma 2", 2024, section 2.
#include "base/status.h"
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

constexpr DecoderForm kForm = {
    .names = {.feed_forward_norm = "pre_feedforward_layernorm"},
    .norms = DecoderForm::Norms::both,
    .norm_offset = true,
    .head_dim = 256,
    .activation_key = "hidden_activation",
    .activation = "gelu_pytorch_tanh",
    .is_tied = true,
    .is_windowed = [](Fields&, int64_t layer) { return layer % 2 == 0; },
};

Result<DecoderParts> declare_gemma2(Weights& weights, Fields& config) {
  BOWLINE_REQUIRE_CODE(!config.boolean_or("use_bidirectional_attention", false), Code::unsupported,
                       "The config has bidirectional attention, which is not supported "
                       "(\"use_bidirectional_attention\").");
  DecoderForm form = kForm;
  form.qkv_bias = form.out_bias = config.boolean_or("attention_bias", false);
  BOWLINE_TRY_ASSIGN(DecoderParts p, declare_decoder(weights, config, form));
  add_gemma_factors(weights, config, p, 30);
  p.attention_softcap = softcap_of(config, "attn_logit_softcapping", 50);
  BOWLINE_TRY(Status(config.status()));
  return p;
}

// Source  transformers, configuration_gemma2.py.
constexpr KeyRule kGemma2Keys[] = {
    {"hidden_activation"},
    {"hidden_act", KeyUse::harmless},
    {"attention_bias query_pre_attn_scalar sliding_window layer_types final_logit_softcapping "
     "attn_logit_softcapping use_bidirectional_attention"},
    {"cache_implementation", KeyUse::harmless},
};

constexpr Architecture kGemma2Architectures[] = {
    {"gemma2", build_decoder<declare_gemma2>, {{kGemma2Keys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_gemma2() { return kGemma2Architectures; }

}  // namespace bowline::import
