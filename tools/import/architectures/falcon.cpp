// Falcon: one or more heads of keys and values, and attention and feed-forward part side by side.
//
// Source  transformers, models/falcon/modeling_falcon.py.
#include "base/status.h"
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderForm> falcon_form(Fields& config) {
  DecoderForm form = {.names = {.prefix = "transformer.",
                                .embedding = "transformer.word_embeddings",
                                .layers = "transformer.h",
                                .qkv = "self_attention.query_key_value",
                                .out = "self_attention.dense",
                                .up = "mlp.dense_h_to_4h",
                                .down = "mlp.dense_4h_to_h",
                                .final_norm = "transformer.ln_f"},
                      .fused_qkv = true,
                      .gated = false,
                      .layer_norms = true,
                      .kv_heads_key = {},
                      .inner_key = "ffn_hidden_size",
                      .inner_factor = 4,
                      .context = 2048,
                      .eps_key = "layer_norm_epsilon",
                      .eps = 1e-5,
                      .head_dim_key = {},
                      .activation_key = "activation",
                      .activation = "gelu",
                      .is_tied = true};
  const bool is_newer = config.boolean_or("new_decoder_architecture", false);
  const bool shares = config.boolean_or("multi_query", true);
  form.is_parallel = config.boolean_or("parallel_attn", true);
  form.qkv_bias = form.out_bias = form.feed_forward_bias = config.boolean_or("bias", false);
  const int64_t norms = config.integer_or("num_ln_in_parallel_attn", 1, 2, is_newer ? 2 : 1);
  BOWLINE_TRY(Status(config.status()));
  BOWLINE_REQUIRE_CODE(form.is_parallel || !is_newer, Code::unsupported,
                       "The config has \"new_decoder_architecture\" without \"parallel_attn\", "
                       "which is not supported.");
  BOWLINE_REQUIRE_CODE(norms == 1 || is_newer, Code::unsupported,
                       "The config has a \"num_ln_in_parallel_attn\" of 2 without "
                       "\"new_decoder_architecture\", which is not supported.");
  if (is_newer) {
    form.kv_heads_key = "num_kv_heads";
    form.qkv_groups = config.integer_or("num_kv_heads", 1, 65536, 0);  // 0: a group per head
  } else {
    form.kv_heads = shares ? 1 : 0;
    form.qkv_groups = shares ? 1 : 0;
  }
  if (norms == 2) {
    form.has_parallel_norms = true;
    form.names.attention_norm = "ln_attn";
    form.names.feed_forward_norm = "ln_mlp";
  }
  return form;
}

Result<DecoderParts> declare_falcon(Weights& weights, Fields& config) {
  BOWLINE_TRY_ASSIGN(const DecoderForm form, falcon_form(config));
  return declare_decoder(weights, config, form);
}

// Source  transformers, configuration_falcon.py.
constexpr KeyRule kFalconKeys[] = {
    {"ffn_hidden_size activation layer_norm_epsilon num_kv_heads new_decoder_architecture "
     "multi_query parallel_attn num_ln_in_parallel_attn bias"},
    {"alibi apply_residual_connection_post_layernorm", KeyUse::fixed, "[false, null]"},
    // transformers drops values of a sum here.
    {"hidden_dropout attention_dropout", KeyUse::fixed, "[0, null]"},
    {"intermediate_size hidden_act num_key_value_heads head_dim", KeyUse::fixed},
    {"rms_norm_eps", KeyUse::harmless},
};

constexpr Architecture kFalconArchitectures[] = {
    {"falcon", build_decoder<declare_falcon>, {{kFalconKeys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_falcon() { return kFalconArchitectures; }

}  // namespace bowline::import
