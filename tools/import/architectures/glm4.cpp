// GLM-4 (0414): a GLM with norms before and behind each part.
//
// Source  transformers, models/glm4/modeling_glm4.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_glm4(Weights& weights, Fields& config) {
  return declare_decoder(weights, config,
                         {.names = {.attention_out_norm = "post_self_attn_layernorm",
                                    .feed_forward_out_norm = "post_mlp_layernorm"},
                          .qkv_bias = config.boolean_or("attention_bias", true),
                          .norms = DecoderForm::Norms::both,
                          .fused_gate_up = true,
                          .eps = 1.5625e-7,
                          .head_dim = 128,
                          .rotary = {.partial = 0.5, .interleaved = true}});
}

// Source  transformers, configuration_glm4.py.
constexpr KeyRule kGlm4Keys[] = {
    {"attention_bias partial_rotary_factor"},
};

constexpr Architecture kGlm4Architectures[] = {
    {"glm4", build_decoder<declare_glm4>, {{kGlm4Keys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_glm4() { return kGlm4Architectures; }

}  // namespace bowline::import
