// EXAONE 4: a Llama with norms of queries and keys, and norms behind each part. Only layers of the
// type "sliding_attention" rotate. If "sliding_window" is null, all layers do.
//
// Source  transformers, models/exaone4/modeling_exaone4.py.
#include "blocks/decoder_form.h"

namespace bowline::import {
namespace {

Result<DecoderParts> declare_exaone4(Weights& weights, Fields& config) {
  return declare_decoder(weights, config,
                         {.query_norms = DecoderForm::QueryNorms::heads,
                          .norms = DecoderForm::Norms::behind,
                          .eps = 1e-5,
                          .rotated = DecoderForm::Rotated::windowed_or_all,
                          .is_windowed = is_before_nth<4>});
}

// Source  transformers, configuration_exaone4.py.
constexpr KeyRule kExaone4Keys[] = {
    {"sliding_window layer_types sliding_window_pattern"},
};

constexpr Architecture kExaone4Architectures[] = {
    {"exaone4", build_decoder<declare_exaone4>, {{kExaone4Keys, kLlamaFamilyKeys}}}};

}  // namespace

std::span<const Architecture> architectures_of_exaone4() { return kExaone4Architectures; }

}  // namespace bowline::import
