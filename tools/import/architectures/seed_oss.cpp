// Seed-OSS: a Llama with biases of queries, keys and values.
//
// Source  transformers, models/seed_oss/modeling_seed_oss.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_seed_oss(Weights& weights, Fields& config) {
  return declare_decoder(weights, config,
                         {.qkv_bias = config.boolean_or("attention_bias", true),
                          .out_bias = config.boolean_or("attention_out_bias", false),
                          .feed_forward_bias = config.boolean_or("mlp_bias", false),
                          .head_dim = 128,
                          .residual_dropout_key = "residual_dropout",
                          .residual_dropout = 0.1});
}

// Source  transformers, configuration_seed_oss.py.
constexpr KeyRule kSeedOssKeys[] = {
    {"attention_bias attention_out_bias mlp_bias residual_dropout"},
};

constexpr Architecture kSeedOssArchitectures[] = {
    {"seed_oss", build_decoder<declare_seed_oss>, {{kSeedOssKeys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_seed_oss() { return kSeedOssArchitectures; }

}  // namespace bowline::import
