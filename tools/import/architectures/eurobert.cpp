// EuroBERT: a Llama with attention in both directions.
//
// Source  transformers, models/eurobert/modeling_eurobert.py; Boizard et al., "EuroBERT", 2025.
#include "base/escape.h"
#include "base/status.h"
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_eurobert(Weights& weights, Fields& config) {
  const bool attention_bias = config.boolean_or("attention_bias", false);
  BOWLINE_TRY_ASSIGN(DecoderParts p,
                     declare_decoder(weights, config,
                                     {.names = {.class_head = "dense."},
                                      .is_bidirectional = true,
                                      .qkv_bias = attention_bias,
                                      .out_bias = attention_bias,
                                      .feed_forward_bias = config.boolean_or("mlp_bias", false),
                                      .context = 8192,
                                      .eps = 1e-5}));
  const std::string pooling = config.text_or("classifier_pooling", "late");
  BOWLINE_TRY(Status(config.status()));
  BOWLINE_REQUIRE_CODE(pooling == "bos" || pooling == "mean" || pooling == "late",
                       Code::unsupported,
                       "The config has the \"classifier_pooling\" {}. Supported: bos, late, mean.",
                       listed_name(pooling));
  // The mean of the logits of all tokens is that of their projected rows.
  p.head_form = {.pooling = pooling == "bos" ? "cls" : "mean",
                 .projection = {.name = "dense", .before_pooling = pooling == "late"}};
  p.head_activation = "gelu";
  return p;
}

// Source  transformers, configuration_eurobert.py.
constexpr KeyRule kEurobertKeys[] = {
    {"architectures attention_bias mlp_bias classifier_pooling"},
    {"mask_token_id tie_word_embeddings", KeyUse::harmless},  // for training with masks
    {"is_causal", KeyUse::fixed, "[false]"},
};

constexpr Architecture kEurobertArchitectures[] = {
    {"eurobert", build_text_encoder<declare_eurobert>, {{kEurobertKeys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_eurobert() { return kEurobertArchitectures; }

}  // namespace bowline::import
