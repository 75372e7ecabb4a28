// Command R: a Llama with layer norms without biases, and attention and feed-forward part side by
// side. It scales the logits, and rotates pairs of neighbouring channels.
//
// Source  transformers, models/cohere/modeling_cohere.py.
#include "base/status.h"
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_cohere(Weights& weights, Fields& config) {
  const bool bias = config.boolean_or("attention_bias", false);
  BOWLINE_TRY_ASSIGN(DecoderParts p,
                     declare_decoder(weights, config,
                                     {.qkv_bias = bias,
                                      .out_bias = bias,
                                      .is_parallel = true,
                                      .layer_norms = true,
                                      .norm_bias = false,
                                      .eps_key = "layer_norm_eps",
                                      .eps = 1e-5,
                                      .is_tied = true,
                                      .rotary = {.theta = 5e5, .interleaved = true}}));
  p.logit_divisor =
      weights.constant("logit_divisor", 1 / config.number_or("logit_scale", 1e-6, 1e6, 0.0625));
  BOWLINE_TRY(Status(config.status()));
  return p;
}

// Source  transformers, configuration_cohere.py.
constexpr KeyRule kCohereKeys[] = {
    {"attention_bias layer_norm_eps logit_scale"},
    {"use_qk_norm", KeyUse::fixed, "[false, null]"},
    {"rms_norm_eps", KeyUse::harmless},
};

constexpr Architecture kCohereArchitectures[] = {
    {"cohere", build_decoder<declare_cohere>, {{kCohereKeys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_cohere() { return kCohereArchitectures; }

}  // namespace bowline::import
