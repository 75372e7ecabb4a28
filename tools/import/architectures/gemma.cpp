// Gemma: a Llama with scaled embeddings and gammas stored minus 1.
//
// Source  transformers, models/gemma/modeling_gemma.py; Gemma Team, "Gemma", 2024, section 2.
#include <cmath>

#include "base/status.h"
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_gemma(Weights& weights, Fields& config) {
  const bool bias = config.boolean_or("attention_bias", false);
  BOWLINE_TRY_ASSIGN(DecoderParts p, declare_decoder(weights, config,
                                                     {.qkv_bias = bias,
                                                      .out_bias = bias,
                                                      .norm_offset = true,
                                                      .head_dim = 256,
                                                      .activation_key = "hidden_activation",
                                                      .activation = "gelu_pytorch_tanh",
                                                      .is_tied = true}));
  p.embedding_scale =
      weights.constant("embedding_scale", std::sqrt(static_cast<double>(p.sizes.width)));
  return p;
}

// Older configs have "gelu" for the approximation by tanh.
// Source  transformers, configuration_gemma.py.
constexpr KeyRule kGemmaKeys[] = {
    {"attention_bias"},
    {"hidden_act", KeyUse::fixed, R"(["gelu", "gelu_pytorch_tanh"])"},
    {"hidden_activation", KeyUse::fixed, R"(["gelu_pytorch_tanh", null])"},
    {"use_bidirectional_attention", KeyUse::fixed, "[false, null]"},
};

constexpr Architecture kGemmaArchitectures[] = {
    {"gemma", build_decoder<declare_gemma>, {{kGemmaKeys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_gemma() { return kGemmaArchitectures; }

}  // namespace bowline::import
