// Qwen3: a Llama with norms for queries and keys.
//
// Source  transformers, models/qwen3/modeling_qwen3.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_qwen3_model(Weights& weights, Fields& config) {
  const bool bias = config.boolean_or("attention_bias", false);
  return declare_decoder(weights, config,
                         {.qkv_bias = bias,
                          .out_bias = bias,
                          .query_norms = DecoderForm::QueryNorms::heads,
                          .head_dim = 128,
                          .is_windowed = is_behind_first_layers,
                          .uses_window = false});
}

// Source  transformers, configuration_qwen3.py.
constexpr KeyRule kQwen3Keys[] = {
    {"attention_bias"},    {"use_sliding_window"}, {"sliding_window"},
    {"max_window_layers"}, {"layer_types"},
};

constexpr Architecture kQwen3Architectures[] = {
    {"qwen3", build_decoder<declare_qwen3_model>, {{kQwen3Keys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_qwen3() { return kQwen3Architectures; }

}  // namespace bowline::import
