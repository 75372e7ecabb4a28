// Phi-3, Phi-3.5 and Phi-4-mini: a Llama with fused products, and rotations for long contexts of a
// part of each head.
//
// Source  transformers, models/phi3/modeling_phi3.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_phi3(Weights& weights, Fields& config) {
  return declare_decoder(weights, config,
                         {.fused_qkv = true,
                          .fused_gate_up = true,
                          .eps = 1e-5,
                          .residual_dropout_key = "resid_pdrop",
                          .rotary = {.partial = 1, .longrope_names = "su yarn", .original = 4096},
                          .is_windowed = is_every_layer,
                          .window = 0});
}

// Source  transformers, configuration_phi3.py.
constexpr KeyRule kPhi3Keys[] = {
    {"resid_pdrop sliding_window partial_rotary_factor original_max_position_embeddings"},
    {"embd_pdrop", KeyUse::harmless},  // transformers does not read it
    {"attention_bias", KeyUse::fixed, "[false, null]"},
};

constexpr Architecture kPhi3Architectures[] = {
    {"phi3", build_decoder<declare_phi3>, {{kPhi3Keys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_phi3() { return kPhi3Architectures; }

}  // namespace bowline::import
