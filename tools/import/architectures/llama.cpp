// Llama 2 and 3, TinyLlama, SmolLM2: RMS norms, rotated keys and queries, a gated feed-forward part.
//
// Source  transformers, models/llama/modeling_llama.py.
#include "blocks/llama_family.h"

namespace bowline::import {
namespace {

Result<Built> build_llama(const Source& source, const BuildOptions& options) {
  return build_decoder(source, options, [&](Weights& weights) -> Result<DecoderParts> {
    Fields config("The config", source.config);
    const bool bias = config.boolean_or("attention_bias", false);
    return declare_llama(weights, config,
                         {.qkv_bias = bias,
                          .out_bias = bias,
                          .feed_forward_bias = config.boolean_or("mlp_bias", false)});
  });
}

constexpr Architecture kLlamaArchitectures[] = {{"llama", build_llama}};

}  // namespace

std::span<const Architecture> architectures_of_llama() { return kLlamaArchitectures; }

}  // namespace bowline::import
