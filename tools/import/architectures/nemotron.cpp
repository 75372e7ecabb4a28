// Nemotron: a Llama with layer norms that store gamma - 1. A part of each head rotates. The
// feed-forward part has no gate; its activation is the square of ReLU.
//
// Source  transformers, models/nemotron/modeling_nemotron.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_nemotron(Weights& weights, Fields& config) {
  const bool bias = config.boolean_or("attention_bias", false);
  return declare_decoder(weights, config,
                         {.qkv_bias = bias,
                          .out_bias = bias,
                          .feed_forward_bias = config.boolean_or("mlp_bias", false),
                          .gated = false,
                          .layer_norms = true,
                          .norm_offset = true,
                          .eps_key = "norm_eps",
                          .eps = 1e-5,
                          .activation = "relu2",
                          .rotary = {.partial = 0.5}});
}

// Source  transformers, configuration_nemotron.py.
constexpr KeyRule kNemotronKeys[] = {
    {"attention_bias mlp_bias norm_eps partial_rotary_factor"},
    {"rms_norm_eps", KeyUse::harmless},
};

constexpr Architecture kNemotronArchitectures[] = {
    {"nemotron", build_decoder<declare_nemotron>, {{kNemotronKeys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_nemotron() { return kNemotronArchitectures; }

}  // namespace bowline::import
