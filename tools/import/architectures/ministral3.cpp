// Ministral 3, the text model: a Mistral with a context extended by YaRN. transformers also scales
// queries at late positions; the import ends the context before them.
//
// Source  transformers, models/ministral3/modeling_ministral3.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_ministral3(Weights& weights, Fields& config) {
  return declare_decoder(weights, config,
                         {.eps = 1e-5,
                          .head_dim = 128,
                          .rotary = {.theta = 1e6, .scales_late_queries = true},
                          .is_windowed = is_every_layer,
                          .window = 0});
}

// Source  transformers, configuration_ministral3.py.
constexpr KeyRule kMinistral3Keys[] = {
    {"sliding_window"},
    {"attention_bias", KeyUse::fixed, "[false, null]"},
};

constexpr Architecture kMinistral3Architectures[] = {
    {"ministral3", build_decoder<declare_ministral3>, {{kMinistral3Keys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_ministral3() { return kMinistral3Architectures; }

}  // namespace bowline::import
