// Qwen2 and Qwen2.5: a Llama with biases for queries, keys and values.
//
// Source  transformers, models/qwen2/modeling_qwen2.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_qwen2_model(Weights& weights, Fields& config) {
  return declare_decoder(
      weights, config,
      {.qkv_bias = true, .is_windowed = is_behind_first_layers, .uses_window = false});
}

// Source  transformers, configuration_qwen2.py.
constexpr KeyRule kQwen2Keys[] = {
    {"use_sliding_window sliding_window max_window_layers layer_types"},
    {"use_mrope", KeyUse::fixed, "[false, null]"},
};

constexpr Architecture kQwen2Architectures[] = {
    {"qwen2", build_decoder<declare_qwen2_model>, {{kQwen2Keys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_qwen2() { return kQwen2Architectures; }

}  // namespace bowline::import
