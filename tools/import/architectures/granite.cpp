// Granite: a Llama with factors of embeddings, scores, residuals and logits.
//
// Source  transformers, models/granite/modeling_granite.py.
#include "base/status.h"
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_granite(Weights& weights, Fields& config) {
  const bool bias = config.boolean_or("attention_bias", false);
  BOWLINE_TRY_ASSIGN(DecoderParts p,
                     declare_decoder(weights, config,
                                     {.qkv_bias = bias,
                                      .out_bias = bias,
                                      .feed_forward_bias = config.boolean_or("mlp_bias", false)}));
  const auto factor = [&](const char* key) { return config.number_or(key, 1e-6, 1e6, 1); };
  p.attention_scale = factor("attention_multiplier");
  p.embedding_scale = weights.constant("embedding_scale", factor("embedding_multiplier"));
  p.residual_scale =
      repeated(weights.constant("residual_scale", factor("residual_multiplier")), p.sizes.layers);
  p.logit_divisor = weights.constant("logit_divisor", factor("logits_scaling"));
  BOWLINE_TRY(Status(config.status()));
  return p;
}

// Source  transformers, configuration_granite.py.
constexpr KeyRule kGraniteKeys[] = {
    {"attention_bias mlp_bias embedding_multiplier logits_scaling residual_multiplier "
     "attention_multiplier"},
};

constexpr Architecture kGraniteArchitectures[] = {
    {"granite", build_decoder<declare_granite>, {{kGraniteKeys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_granite() { return kGraniteArchitectures; }

}  // namespace bowline::import
