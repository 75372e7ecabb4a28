// HunYuan (dense): a Llama with norms of rotated queries and keys.
//
// Source  transformers, models/hunyuan_v1_dense/modeling_hunyuan_v1_dense.py.
#include "base/status.h"
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_hunyuan(Weights& weights, Fields& config) {
  const bool bias = config.boolean_or("attention_bias", false);
  return declare_decoder(
      weights, config,
      {.names = {.q_norm = "self_attn.query_layernorm", .k_norm = "self_attn.key_layernorm"},
       .qkv_bias = bias,
       .out_bias = bias,
       .query_norms = DecoderForm::QueryNorms::heads,
       .norms_rotated = true,
       .context = 2048,
       .eps = 1e-5,
       .rotary = {.has_alpha = true}});
}

// Source  transformers, configuration_hunyuan_v1_dense.py, and published configs.
constexpr KeyRule kHunyuanKeys[] = {
    {"attention_bias"},
    {"use_qk_norm use_rotary_pos_emb", KeyUse::fixed, "[true]"},
    {"use_cla mlp_bias add_classification_head", KeyUse::fixed, "[false]"},
    {"norm_type", KeyUse::fixed, R"(["rms"])"},
    // Tokens with a meaning, and settings of models of images or classes.
    {"eod_token_id sep_token_id mask_init_id im_start_id im_end_id im_newline_id image_token_id "
     "text_start_id text_end_id video_start_id video_end_id pad_id attention_head_dim "
     "org_vocab_size class_num pool_type dense_list cla_share_factor anyres_pooling_size "
     "anyres_vit_max_image_size",
     KeyUse::harmless},
};

constexpr Architecture kHunyuanArchitectures[] = {
    {"hunyuan_v1_dense", build_decoder<declare_hunyuan>, {{kHunyuanKeys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_hunyuan() { return kHunyuanArchitectures; }

}  // namespace bowline::import
