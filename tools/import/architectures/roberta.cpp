// RoBERTa: a BERT whose positions start after the padding position, and whose classification head
// has its own dense layer.
//
// Source  transformers, models/roberta/modeling_roberta.py.
#include "blocks/bert_family.h"

namespace bowline::import {
namespace {

Result<EncoderParts> declare_roberta(Weights& weights, Fields& config) {
  const int64_t padding = config.integer_or("pad_token_id", 0, 65536, 1);
  weights.rename("classifier.out_proj.weight", "classifier.weight");
  weights.rename("classifier.out_proj.bias", "classifier.bias");
  BOWLINE_TRY_ASSIGN(EncoderParts parts, declare_bert(weights, config, "roberta.", padding + 1));
  parts.padding = weights.constant("padding_id", static_cast<double>(padding), DType::f32);
  return parts;
}

constexpr EncoderForm kRobertaForm = {
    .declare = declare_roberta,
    .head = {.pooling = "cls", .projection = {"classifier.dense", "tanh", true}},
    .other_heads = {"lm_head.*", "qa_outputs.*", "pooler.*"},
};

constexpr Architecture kRobertaArchitectures[] = {
    {"camembert", build_encoder<kRobertaForm>, {{std::span<const KeyRule>(), kBertFamilyKeys}}},
    {"roberta", build_encoder<kRobertaForm>, {{std::span<const KeyRule>(), kBertFamilyKeys}}},
    {"xlm-roberta", build_encoder<kRobertaForm>, {{std::span<const KeyRule>(), kBertFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_roberta() { return kRobertaArchitectures; }

}  // namespace bowline::import
