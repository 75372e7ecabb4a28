// StarCoder2: a Llama with layer norms, biases, and a feed-forward part without a gate.
//
// Source  transformers, models/starcoder2/modeling_starcoder2.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_starcoder2(Weights& weights, Fields& config) {
  const bool bias = config.boolean_or("use_bias", true);
  return declare_decoder(weights, config,
                         {.names = {.up = "mlp.c_fc", .down = "mlp.c_proj"},
                          .qkv_bias = bias,
                          .out_bias = bias,
                          .feed_forward_bias = bias,
                          .gated = false,
                          .layer_norms = true,
                          .eps_key = "norm_epsilon",
                          .eps = 1e-5,
                          .activation = "gelu_pytorch_tanh",
                          .is_tied = true,
                          .embedding_dropout_key = "embedding_dropout",
                          .residual_dropout_key = "residual_dropout",
                          .is_windowed = is_every_layer,
                          .window = 0});
}

// Source  transformers, configuration_starcoder2.py.
constexpr KeyRule kStarcoder2Keys[] = {
    {"use_bias norm_epsilon sliding_window residual_dropout embedding_dropout"},
    {"rms_norm_eps", KeyUse::harmless},
};

constexpr Architecture kStarcoder2Architectures[] = {
    {"starcoder2", build_decoder<declare_starcoder2>, {{kStarcoder2Keys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_starcoder2() { return kStarcoder2Architectures; }

}  // namespace bowline::import
