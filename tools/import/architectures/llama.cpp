// Llama 2 and 3, TinyLlama, SmolLM2: RMS norms, rotary keys and queries, a gated feed-forward part.
//
// Source  transformers, models/llama/modeling_llama.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_llama_model(Weights& weights, Fields& config) {
  const bool bias = config.boolean_or("attention_bias", false);
  return declare_decoder(weights, config,
                         {.qkv_bias = bias,
                          .out_bias = bias,
                          .feed_forward_bias = config.boolean_or("mlp_bias", false)});
}

// Source  transformers, configuration_llama.py.
constexpr KeyRule kLlamaKeys[] = {
    {"attention_bias mlp_bias"},
    {"sliding_window", KeyUse::fixed, "[null]"},
    {"rope_interleaved", KeyUse::fixed, "[false, null]"},
    {"is_llama_config", KeyUse::harmless},
};

constexpr Architecture kLlamaArchitectures[] = {
    {"llama", build_decoder<declare_llama_model>, {{kLlamaKeys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_llama() { return kLlamaArchitectures; }

}  // namespace bowline::import
