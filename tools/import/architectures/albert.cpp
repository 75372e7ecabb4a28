// ALBERT: a BERT whose layers share weights by group, and whose embeddings are narrower than its
// hidden rows.
//
// Source  transformers, models/albert/modeling_albert.py.
#include <fmt/format.h>

#include "base/status.h"
#include "blocks/encoder.h"

namespace bowline::import {
namespace {

// The tensor name prefix of each layer. The group of a layer is computed in double precision, as in
// transformers.
std::vector<std::string> albert_layers(int64_t layers, int64_t groups, int64_t inner) {
  const double layers_per_group = static_cast<double>(layers) / static_cast<double>(groups);
  std::vector<std::string> out;
  for (int64_t i = 0; i < layers; ++i) {
    const auto group = static_cast<int64_t>(static_cast<double>(i) / layers_per_group);
    for (int64_t j = 0; j < inner; ++j) {
      out.push_back(fmt::format("encoder.albert_layer_groups.{}.albert_layers.{}", group, j));
    }
  }
  return out;
}

Result<EncoderParts> declare_albert(Weights& weights, Fields& config) {
  BOWLINE_TRY_ASSIGN(EncoderParts parts, encoder_of(config, {.default_activation = "gelu_new"}));
  EncoderSizes& s = parts.sizes;
  const int64_t layers = s.layers;
  const int64_t groups = config.integer_or("num_hidden_groups", 1, layers, 1);
  const int64_t inner = config.integer_or("inner_group_num", 1, 64, 1);
  s.layers = layers * inner;
  s.embedding_width = config.integer_or("embedding_size", 1, kMostSize, 128);
  const double hidden = config.number_or("hidden_dropout_prob", 0, 0.999, 0);
  const double pooled = config.number_or("classifier_dropout_prob", 0, 0.999, 0.1);
  BOWLINE_TRY(Status(config.status()));
  weights.strip_prefix("albert.");
  EncoderNames names = {"",
                        "attention.query",
                        "attention.key",
                        "attention.value",
                        "attention.dense",
                        "attention.LayerNorm",
                        "ffn",
                        "ffn_output",
                        "full_layer_layer_norm"};
  names.of_layer = albert_layers(layers, groups, inner);
  declare_encoder(weights, names, true, parts);
  const std::string mapping = "encoder.embedding_hidden_mapping_in";
  parts.embedding_projection =
      Linear{weights.one(mapping + ".weight", {s.width, s.embedding_width}),
             weights.one(mapping + ".bias", {s.width})};
  parts.dropout = {hidden, hidden, 0, pooled};
  return parts;
}

constexpr EncoderForm kAlbertForm = {
    .declare = declare_albert,
    .head = {.pooling = "cls", .projection = {"pooler", "tanh"}},
    .other_heads = {"predictions.*", "sop_classifier.*", "qa_outputs.*"},
};

// Source  transformers, configuration_albert.py, 2 to 5.
constexpr KeyRule kAlbertKeys[] = {
    {"num_hidden_layers num_hidden_groups inner_group_num hidden_size embedding_size "
     "num_attention_heads intermediate_size max_position_embeddings layer_norm_eps hidden_act "
     "hidden_dropout_prob classifier_dropout_prob"},
    {"position_embedding_type", KeyUse::fixed, R"(["absolute", null])"},
    {"type_vocab_size attention_probs_dropout_prob tie_word_embeddings down_scale_factor gap_size "
     "net_structure_type num_memory_blocks",
     KeyUse::harmless},
};

constexpr Architecture kAlbertArchitectures[] = {
    {"albert", build_encoder<kAlbertForm>, {{kAlbertKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_albert() { return kAlbertArchitectures; }

}  // namespace bowline::import
