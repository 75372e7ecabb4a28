// GPT-J: rotations of a part of each head, and attention and feed-forward part side by side.
//
// Source  transformers, models/gptj/modeling_gptj.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_gptj(Weights& weights, Fields& config) {
  weights.drop("*attn.bias", "the causal mask is computed");
  weights.drop("*attn.masked_bias", "the causal mask is computed");
  return declare_decoder(weights, config, gptj_form(config));
}

// Source  transformers, configuration_gptj.py.
constexpr KeyRule kGptjKeys[] = {
    {"rotary_dim"},
    {"rotary", KeyUse::fixed, "[true, null]"},
};

constexpr Architecture kGptjArchitectures[] = {
    {"gptj", build_decoder<declare_gptj>, {{kGptjKeys, kGptFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_gptj() { return kGptjArchitectures; }

}  // namespace bowline::import
