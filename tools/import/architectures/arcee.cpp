// Arcee (AFM): a Llama whose feed-forward part activates with the square of ReLU, without a gate.
//
// Source  transformers, models/arcee/modeling_arcee.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_arcee(Weights& weights, Fields& config) {
  const bool bias = config.boolean_or("attention_bias", false);
  return declare_decoder(weights, config,
                         {.qkv_bias = bias,
                          .out_bias = bias,
                          .feed_forward_bias = config.boolean_or("mlp_bias", false),
                          .gated = false,
                          .eps = 1e-5,
                          .activation = "relu2"});
}

// Source  transformers, configuration_arcee.py.
constexpr KeyRule kArceeKeys[] = {
    {"attention_bias mlp_bias"},
};

constexpr Architecture kArceeArchitectures[] = {
    {"arcee", build_decoder<declare_arcee>, {{kArceeKeys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_arcee() { return kArceeArchitectures; }

}  // namespace bowline::import
