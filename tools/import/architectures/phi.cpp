// Phi-1, Phi-1.5 and Phi-2: a Llama with layer norms, biases, rotations of a part of each head, and
// attention and feed-forward part side by side.
//
// Source  transformers, models/phi/modeling_phi.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_phi(Weights& weights, Fields& config) {
  return declare_decoder(weights, config,
                         {.names = {.out = "self_attn.dense",
                                    .up = "mlp.fc1",
                                    .down = "mlp.fc2",
                                    .final_norm = "model.final_layernorm"},
                          .qkv_bias = true,
                          .out_bias = true,
                          .feed_forward_bias = true,
                          .is_parallel = true,
                          .gated = false,
                          .layer_norms = true,
                          .head_bias = true,
                          .eps_key = "layer_norm_eps",
                          .eps = 1e-5,
                          .activation = "gelu_new",
                          .embedding_dropout_key = "embd_pdrop",
                          .residual_dropout_key = "resid_pdrop",
                          .rotary = {.partial = 0.5}});
}

// Source  transformers, configuration_phi.py.
constexpr KeyRule kPhiKeys[] = {
    {"layer_norm_eps partial_rotary_factor resid_pdrop embd_pdrop"},
    {"qk_layernorm", KeyUse::fixed, "[false, null]"},
    {"rms_norm_eps", KeyUse::harmless},
};

constexpr Architecture kPhiArchitectures[] = {
    {"phi", build_decoder<declare_phi>, {{kPhiKeys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_phi() { return kPhiArchitectures; }

}  // namespace bowline::import
