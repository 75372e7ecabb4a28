// OLMo 2: a Llama with norms behind each part instead of before it, and norms of all query heads
// and of all key heads together.
//
// Source  transformers, models/olmo2/modeling_olmo2.py; OLMo Team, "2 OLMo 2 Furious", 2024.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_olmo2(Weights& weights, Fields& config) {
  const bool bias = config.boolean_or("attention_bias", false);
  return declare_decoder(weights, config,
                         {.qkv_bias = bias,
                          .out_bias = bias,
                          .query_norms = DecoderForm::QueryNorms::all,
                          .norms = DecoderForm::Norms::behind,
                          .eps = 1e-5});
}

// Source  transformers, configuration_olmo2.py.
constexpr KeyRule kOlmo2Keys[] = {{"attention_bias"}};

constexpr Architecture kOlmo2Architectures[] = {
    {"olmo2", build_decoder<declare_olmo2>, {{kOlmo2Keys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_olmo2() { return kOlmo2Architectures; }

}  // namespace bowline::import
