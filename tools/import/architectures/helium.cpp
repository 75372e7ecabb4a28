// Helium: a Llama that rotates neighbouring channels.
//
// Source  transformers, models/helium/modeling_helium.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_helium(Weights& weights, Fields& config) {
  const bool bias = config.boolean_or("mlp_bias", false);
  return declare_decoder(weights, config,
                         {.qkv_bias = config.boolean_or("attention_bias", false),
                          .feed_forward_bias = bias,
                          .eps = 1e-8,
                          .head_dim = 128,
                          .rotary = {.theta = 1e5, .interleaved = true}});
}

// Source  transformers, configuration_helium.py.
constexpr KeyRule kHeliumKeys[] = {
    {"attention_bias mlp_bias"},
};

constexpr Architecture kHeliumArchitectures[] = {
    {"helium", build_decoder<declare_helium>, {{kHeliumKeys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_helium() { return kHeliumArchitectures; }

}  // namespace bowline::import
