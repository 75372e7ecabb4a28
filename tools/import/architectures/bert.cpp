// BERT: learned positions and token types, post-norm layers, GELU.
//
// Source  transformers, models/bert/modeling_bert.py.
#include "blocks/bert_family.h"

namespace bowline::import {
namespace {

Result<Built> build_bert(const Source& source, const BuildOptions& options) {
  const auto declare = [&](Weights& weights) {
    Fields config("The config", source.config);
    return declare_bert(weights, config, "bert.", 0);
  };
  return build_encoder(source, options,
                       {.declare = declare,
                        .projection = {"pooler.dense", "tanh"},
                        .other_heads = {"cls.*", "qa_outputs.*"}});
}

// Source  transformers, configuration_bert.py.
constexpr KeyRule kBertKeys[] = {
    {"directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers "
     "pooler_size_per_head pooler_type",
     KeyUse::harmless},
};

constexpr Architecture kBertArchitectures[] = {
    {"bert", build_bert, {{kBertKeys, kBertFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_bert() { return kBertArchitectures; }

}  // namespace bowline::import
