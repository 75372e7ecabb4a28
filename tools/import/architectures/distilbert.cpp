// DistilBERT: a BERT without token types.
//
// Source  transformers, models/distilbert/modeling_distilbert.py.
#include "base/status.h"
#include "blocks/encoder.h"

namespace bowline::import {
namespace {

Result<EncoderParts> declare_distilbert(Weights& weights, Fields& config) {
  constexpr int64_t kMost = int64_t{1} << 24;
  EncoderSizes s;
  s.layers = config.integer("n_layers", 1, 4096);
  s.width = config.integer("dim", 1, kMost);
  s.heads = config.integer("n_heads", 1, 65536);
  s.inner = config.integer("hidden_dim", 1, kMost);
  s.vocabulary = config.integer("vocab_size", 1, kMost);
  s.positions = config.integer("max_position_embeddings", 1, kMost);
  const std::string activation = config.text_or("activation", "gelu");
  const double hidden = config.number_or("dropout", 0, 0.999, 0.1);
  const double pooled = config.number_or("seq_classif_dropout", 0, 0.999, 0.2);
  BOWLINE_TRY(Status(config.status()));
  BOWLINE_TRY_ASSIGN(Activation known, activation_of(activation));
  weights.strip_prefix("distilbert.");
  const EncoderNames names = {"transformer.layer", "attention.q_lin",   "attention.k_lin",
                              "attention.v_lin",   "attention.out_lin", "sa_layer_norm",
                              "ffn.lin1",          "ffn.lin2",          "output_layer_norm"};
  EncoderParts parts = declare_encoder(weights, s, names, false, 1e-12, std::move(known));
  parts.dropout = {hidden, 0, hidden, pooled};
  return parts;
}

Result<Built> build_distilbert(const Source& source, const BuildOptions& options) {
  const auto declared = [&](Weights& weights) {
    Fields config("The config", source.config);
    return declare_distilbert(weights, config);
  };
  return build_encoder(source, options,
                       {.declare = declared,
                        .projection = {"pre_classifier", "relu"},
                        .other_heads = {"vocab_*", "qa_outputs.*"}});
}

// Source  transformers, configuration_distilbert.py.
constexpr KeyRule kDistilbertKeys[] = {
    {"n_layers dim n_heads hidden_dim max_position_embeddings activation dropout "
     "seq_classif_dropout"},
    {"attention_dropout qa_dropout sinusoidal_pos_embds tie_weights_ tie_word_embeddings",
     KeyUse::harmless},
    {"is_decoder", KeyUse::fixed, "[false, null]"},
};

constexpr Architecture kDistilbertArchitectures[] = {
    {"distilbert", build_distilbert, {{kDistilbertKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_distilbert() { return kDistilbertArchitectures; }

}  // namespace bowline::import
