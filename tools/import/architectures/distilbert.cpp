// DistilBERT: a BERT without token types.
//
// Source  transformers, models/distilbert/modeling_distilbert.py.
#include "base/status.h"
#include "blocks/encoder.h"

namespace bowline::import {
namespace {

Result<EncoderParts> declare_distilbert(Weights& weights, Fields& config) {
  BOWLINE_TRY_ASSIGN(EncoderParts parts, encoder_of(config, {.layers = "n_layers",
                                                             .width = "dim",
                                                             .heads = "n_heads",
                                                             .inner = "hidden_dim",
                                                             .eps = "",
                                                             .activation = "activation"}));
  const double hidden = config.number_or("dropout", 0, 0.999, 0.1);
  const double pooled = config.number_or("seq_classif_dropout", 0, 0.999, 0.2);
  BOWLINE_TRY(Status(config.status()));
  weights.strip_prefix("distilbert.");
  const EncoderNames names = {"transformer.layer", "attention.q_lin",   "attention.k_lin",
                              "attention.v_lin",   "attention.out_lin", "sa_layer_norm",
                              "ffn.lin1",          "ffn.lin2",          "output_layer_norm"};
  declare_encoder(weights, names, false, parts);
  parts.dropout = {hidden, 0, hidden, pooled};
  return parts;
}

constexpr EncoderForm kDistilbertForm = {
    .declare = declare_distilbert,
    .head = {.pooling = "cls", .projection = {"pre_classifier", "relu"}},
    .other_heads = {"vocab_*", "qa_outputs.*"},
};

// Source  transformers, configuration_distilbert.py.
constexpr KeyRule kDistilbertKeys[] = {
    {"n_layers dim n_heads hidden_dim max_position_embeddings activation dropout "
     "seq_classif_dropout"},
    {"attention_dropout qa_dropout sinusoidal_pos_embds tie_weights_ tie_word_embeddings",
     KeyUse::harmless},
    {"is_decoder", KeyUse::fixed, "[false, null]"},
};

constexpr Architecture kDistilbertArchitectures[] = {
    {"distilbert", build_encoder<kDistilbertForm>, {{kDistilbertKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_distilbert() { return kDistilbertArchitectures; }

}  // namespace bowline::import
