// Ministral: a Mistral in which layers can have different windows.
//
// Source  transformers, models/ministral/modeling_ministral.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_ministral(Weights& weights, Fields& config) {
  return declare_decoder(weights, config, {.is_windowed = is_every_layer});
}

// Source  transformers, configuration_ministral.py.
constexpr KeyRule kMinistralKeys[] = {
    {"sliding_window layer_types"},
    {"use_sliding_window", KeyUse::harmless},  // transformers does not read it
    {"attention_bias", KeyUse::fixed, "[false, null]"},
};

constexpr Architecture kMinistralArchitectures[] = {
    {"ministral", build_decoder<declare_ministral>, {{kMinistralKeys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_ministral() { return kMinistralArchitectures; }

}  // namespace bowline::import
