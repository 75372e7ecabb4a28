// OLMo: a Llama with layer norms without weights and biases.
//
// Source  transformers, models/olmo/modeling_olmo.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_olmo(Weights& weights, Fields& config) {
  const bool bias = config.boolean_or("attention_bias", false);
  return declare_decoder(weights, config,
                         {.qkv_bias = bias,
                          .out_bias = bias,
                          .layer_norms = true,
                          .norm_weights = false,
                          .norm_bias = false,
                          .eps_key = "",
                          .eps = 1e-5});
}

// Source  transformers, configuration_olmo.py.
constexpr KeyRule kOlmoKeys[] = {
    {"attention_bias"},
    {"clip_qkv", KeyUse::fixed, "[null]"},
    {"rms_norm_eps", KeyUse::harmless},
};

constexpr Architecture kOlmoArchitectures[] = {
    {"olmo", build_decoder<declare_olmo>, {{kOlmoKeys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_olmo() { return kOlmoArchitectures; }

}  // namespace bowline::import
