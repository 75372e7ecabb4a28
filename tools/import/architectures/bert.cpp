// BERT: learned positions and token types, post-norm layers, GELU.
//
// Source  transformers, models/bert/modeling_bert.py.
#include "blocks/bert_family.h"

namespace bowline::import {
namespace {

Result<EncoderParts> declare_bert_model(Weights& weights, Fields& config) {
  return declare_bert(weights, config, "bert.", 0);
}

constexpr EncoderForm kBertForm = {
    .declare = declare_bert_model,
    .head = {.pooling = "cls", .projection = {"pooler.dense", "tanh"}},
    .other_heads = {"cls.*", "qa_outputs.*"},
};

// Source  transformers, configuration_bert.py.
constexpr KeyRule kBertKeys[] = {
    {"directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers "
     "pooler_size_per_head pooler_type",
     KeyUse::harmless},
};

constexpr Architecture kBertArchitectures[] = {
    {"bert", build_encoder<kBertForm>, {{kBertKeys, kBertFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_bert() { return kBertArchitectures; }

}  // namespace bowline::import
