#include "blocks/bert_family.h"

#include "base/escape.h"
#include "base/status.h"

namespace bowline::import {

Result<EncoderParts> declare_bert(Weights& weights, Fields& config, std::string_view prefix,
                                  int64_t first_position, int64_t embedding_width) {
  BOWLINE_TRY_ASSIGN(EncoderParts parts, encoder_of(config, {}));
  parts.sizes.first_position = first_position;
  parts.sizes.embedding_width = embedding_width;
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
  weights.strip_prefix(prefix);
  const EncoderNames names = {
      "encoder.layer",        "attention.self.query",   "attention.self.key",
      "attention.self.value", "attention.output.dense", "attention.output.LayerNorm",
      "intermediate.dense",   "output.dense",           "output.LayerNorm"};
  declare_encoder(weights, names, true, parts);
  parts.dropout = {hidden, hidden, hidden, pooled};
  return parts;
}

}  // namespace bowline::import
