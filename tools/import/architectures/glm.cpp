// GLM: a Llama whose gate and up products are fused. A part of each head rotates, in pairs of
// neighbouring channels.
//
// Source  transformers, models/glm/modeling_glm.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_glm(Weights& weights, Fields& config) {
  return declare_decoder(weights, config,
                         {.qkv_bias = config.boolean_or("attention_bias", true),
                          .fused_gate_up = true,
                          .eps = 1.5625e-7,
                          .head_dim = 128,
                          .rotary = {.partial = 0.5, .interleaved = true}});
}

// Source  transformers, configuration_glm.py.
constexpr KeyRule kGlmKeys[] = {
    {"attention_bias partial_rotary_factor"},
};

constexpr Architecture kGlmArchitectures[] = {
    {"glm", build_decoder<declare_glm>, {{kGlmKeys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_glm() { return kGlmArchitectures; }

}  // namespace bowline::import
