// StableLM: a Llama with layer norms, rotations of a part of each head and, in some models,
// attention and feed-forward part side by side.
//
// Source  transformers, models/stablelm/modeling_stablelm.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_stablelm(Weights& weights, Fields& config) {
  return declare_decoder(weights, config,
                         {.qkv_bias = config.boolean_or("use_qkv_bias", false),
                          .is_parallel = config.boolean_or("use_parallel_residual", false),
                          .layer_norms = true,
                          .eps_key = "layer_norm_eps",
                          .eps = 1e-5,
                          .rotary = {.partial = 0.25}});
}

// Source  transformers, configuration_stablelm.py.
constexpr KeyRule kStablelmKeys[] = {
    {"use_qkv_bias use_parallel_residual layer_norm_eps partial_rotary_factor"},
    {"qk_layernorm", KeyUse::fixed, "[false, null]"},
    {"hidden_dropout", KeyUse::fixed, "[0, null]"},
    {"rms_norm_eps", KeyUse::harmless},
};

constexpr Architecture kStablelmArchitectures[] = {
    {"stablelm", build_decoder<declare_stablelm>, {{kStablelmKeys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_stablelm() { return kStablelmArchitectures; }

}  // namespace bowline::import
