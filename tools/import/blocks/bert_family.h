// BERT, and what differs from it in names and positions.
#pragma once

#include "blocks/encoder.h"

namespace bowline::import {

// `prefix` is what a model with a head puts in front of the names ("bert."). `first_position` is the row of the first token.
Result<EncoderParts> declare_bert(Weights& weights, Fields& config, std::string_view prefix,
                                  int64_t first_position);

}  // namespace bowline::import
