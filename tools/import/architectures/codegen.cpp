// CodeGen: a GPT-J with a fused product for queries, keys and values.
//
// Source  transformers, models/codegen/modeling_codegen.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_codegen(Weights& weights, Fields& config) {
  weights.drop("*attn.causal_mask", "the causal mask is computed");
  DecoderForm form = gptj_form(config);
  form.names.qkv = "attn.qkv_proj";
  form.fused_qkv = true;
  form.qkv_groups = 4;  // the training ran on four devices
  form.values_before_keys = true;
  return declare_decoder(weights, config, form);
}

// Source  transformers, configuration_codegen.py.
constexpr KeyRule kCodegenKeys[] = {
    {"rotary_dim"},
};

constexpr Architecture kCodegenArchitectures[] = {
    {"codegen", build_decoder<declare_codegen>, {{kCodegenKeys, kGptFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_codegen() { return kCodegenArchitectures; }

}  // namespace bowline::import
