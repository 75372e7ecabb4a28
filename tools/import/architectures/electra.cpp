// ELECTRA: a BERT whose embeddings can have another width than its layers.
//
// Source  transformers, models/electra/modeling_electra.py.
#include "base/status.h"
#include "blocks/bert_family.h"

namespace bowline::import {
namespace {

Result<EncoderParts> declare_electra(Weights& weights, Fields& config) {
  const int64_t width = config.integer("hidden_size", 1, kMostSize);
  const int64_t own = config.integer_or("embedding_size", 1, kMostSize, 128);
  BOWLINE_TRY(Status(config.status()));
  weights.rename("classifier.out_proj.weight", "classifier.weight");
  weights.rename("classifier.out_proj.bias", "classifier.bias");
  BOWLINE_TRY_ASSIGN(EncoderParts parts, declare_bert(weights, config, "electra.", 0, own));
  if (own != width) {
    parts.embedding_projection = Linear{weights.one("embeddings_project.weight", {width, own}),
                                        weights.one("embeddings_project.bias", {width})};
  }
  return parts;
}

constexpr EncoderForm kElectraForm = {
    .declare = declare_electra,
    .head = {.pooling = "cls", .projection = {"classifier.dense", "gelu", true}},
    .other_heads = {"*_predictions.*", "generator_lm_head.*", "qa_outputs.*"},
};

// Source  transformers, configuration_electra.py.
constexpr KeyRule kElectraKeys[] = {
    {"embedding_size"},
    {"summary_type summary_use_proj summary_activation summary_last_dropout",
     KeyUse::harmless},  // of a head for multiple choice
};

constexpr Architecture kElectraArchitectures[] = {
    {"electra", build_encoder<kElectraForm>, {{kElectraKeys, kBertFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_electra() { return kElectraArchitectures; }

}  // namespace bowline::import
