#include "blocks/bert_family.h"

#include "base/escape.h"
#include "base/status.h"

namespace bowline::import {

Result<EncoderParts> declare_bert(Weights& weights, Fields& config, std::string_view prefix,
                                  int64_t first_position) {
  constexpr int64_t kMost = int64_t{1} << 24;
  EncoderSizes s;
  s.layers = config.integer("num_hidden_layers", 1, 4096);
  s.width = config.integer("hidden_size", 1, kMost);
  s.heads = config.integer("num_attention_heads", 1, 65536);
  s.inner = config.integer("intermediate_size", 1, kMost);
  s.vocabulary = config.integer("vocab_size", 1, kMost);
  s.positions = config.integer("max_position_embeddings", 1, kMost);
  s.first_position = first_position;
  const double eps = config.number_or("layer_norm_eps", 1e-12, 1, 1e-12);
  const std::string activation = config.text_or("hidden_act", "gelu");
  const std::string kind = config.text_or("position_embedding_type", "absolute");
  const double hidden = config.number_or("hidden_dropout_prob", 0, 0.999, 0.1);
  const double pooled = config.number_or("classifier_dropout", 0, 0.999, hidden);
  const bool is_decoder = config.boolean_or("is_decoder", false);
  BOWLINE_TRY(Status(config.status()));
  BOWLINE_REQUIRE_CODE(
      kind == "absolute", Code::unsupported,
      "Position embeddings of the type \"{}\" are not supported; only \"absolute\" is.",
      escaped(kind));
  BOWLINE_REQUIRE_CODE(!is_decoder, Code::unsupported,
                       "The config has \"is_decoder\": true, but this architecture is supported "
                       "only as an encoder.");
  BOWLINE_TRY_ASSIGN(Activation known, activation_of(activation));
  weights.strip_prefix(prefix);
  const EncoderNames names = {
      "encoder.layer",        "attention.self.query",   "attention.self.key",
      "attention.self.value", "attention.output.dense", "attention.output.LayerNorm",
      "intermediate.dense",   "output.dense",           "output.LayerNorm"};
  EncoderParts parts = declare_encoder(weights, s, names, true, eps, std::move(known));
  parts.dropout = {hidden, hidden, hidden, pooled};
  return parts;
}

}  // namespace bowline::import
