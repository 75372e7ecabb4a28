// GPT-BigCode (SantaCoder, StarCoder): a GPT-2 whose heads share one head of keys and values.
//
// Source  transformers, models/gpt_bigcode/modeling_gpt_bigcode.py.
#include "base/status.h"
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_gpt_bigcode(Weights& weights, Fields& config) {
  weights.drop("*attn.bias", "the causal mask is computed");
  const bool shares = config.boolean_or("multi_query", true);
  DecoderForm form = kGptForm;
  form.kv_heads_key = "num_key_value_heads";  // transformers 5 computes it
  form.kv_heads = shares ? 1 : 0;
  form.qkv_groups = shares ? 1 : 0;
  form.activation = "gelu_pytorch_tanh";
  BOWLINE_TRY_ASSIGN(DecoderParts p, declare_decoder(weights, config, form));
  BOWLINE_REQUIRE_CODE(p.sizes.kv_heads == (shares ? 1 : p.sizes.heads), Code::bad_file,
                       "The config has {} heads of keys and values, but \"multi_query\" is {}.",
                       p.sizes.kv_heads, shares);
  return p;
}

// Source  transformers, configuration_gpt_bigcode.py.
constexpr KeyRule kGptBigcodeKeys[] = {
    {"multi_query num_key_value_heads"},
    // How transformers computes the softmax, and settings of another program.
    {"attention_softmax_in_fp32 scale_attention_softmax_in_fp32 inference_runner max_batch_size "
     "max_sequence_length pad_key_length pre_allocate_kv_cache validate_runner_input",
     KeyUse::harmless},
};

constexpr Architecture kGptBigcodeArchitectures[] = {
    {"gpt_bigcode", build_decoder<declare_gpt_bigcode>, {{kGptBigcodeKeys, kGptFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_gpt_bigcode() { return kGptBigcodeArchitectures; }

}  // namespace bowline::import
