// BERT and related encoders that differ in tensor names and positions.
#pragma once

#include "blocks/encoder.h"
#include "source/keys.h"

namespace bowline::import {

// Keys of config.json that all models of the family have.
// Source  transformers, configuration_bert.py, 2 to 5.
inline constexpr KeyRule kBertFamilyKeys[] = {
    {"num_hidden_layers hidden_size num_attention_heads intermediate_size max_position_embeddings "
     "layer_norm_eps hidden_act hidden_dropout_prob classifier_dropout position_embedding_type "
     "is_decoder"},
    {"type_vocab_size", KeyUse::harmless},  // number of table rows; all tokens have type 0
    {"attention_probs_dropout_prob", KeyUse::harmless},  // --dropout ignores it
    {"tie_word_embeddings", KeyUse::harmless},           // about the head of another task
};

// Declares the tensors of a BERT. `prefix` is the name prefix in a model with a head ("bert.").
// `first_position` is the position row of the first token. `embedding_width` is the width of the
// embeddings; 0: that of the hidden rows.
Result<EncoderParts> declare_bert(Weights& weights, Fields& config, std::string_view prefix,
                                  int64_t first_position, int64_t embedding_width = 0);

}  // namespace bowline::import
