// GPT-2: learned positions, layer norms with biases, and a fused product for queries, keys and
// values. Weights are [in, out].
//
// Source  transformers, models/gpt2/modeling_gpt2.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_gpt2(Weights& weights, Fields& config) {
  weights.drop("*attn.bias", "the causal mask is computed");
  weights.drop("*attn.masked_bias", "the causal mask is computed");
  DecoderForm form = kGptForm;
  form.input_first = true;
  return declare_decoder(weights, config, form);
}

// Source  transformers, configuration_gpt2.py.
constexpr KeyRule kGpt2Keys[] = {
    {"scale_attn_by_inverse_layer_idx", KeyUse::fixed, "[false, null]"},
    {"reorder_and_upcast_attn", KeyUse::harmless},
};

constexpr Architecture kGpt2Architectures[] = {
    {"gpt2", build_decoder<declare_gpt2>, {{kGpt2Keys, kGptFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_gpt2() { return kGpt2Architectures; }

}  // namespace bowline::import
