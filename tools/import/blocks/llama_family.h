// Llama, and what differs from it in biases and norms.
#pragma once

#include "blocks/decoder.h"
#include "source/json.h"

namespace bowline::import {

struct LlamaForm {
  bool qkv_bias = false;
  bool out_bias = false;
  bool feed_forward_bias = false;
  bool head_norms = false;  // of queries and keys
  // Of the config, where it does not say.
  double rms_eps = 1e-6;
  double rope_theta = 10000;
  int64_t head_dim = 0;  // 0: the width, divided by the heads
  // Tokens that attention sees at most; 0: all.
  int64_t window = 0;
};

// Errors  unsupported: the config asks for another rotation or activation.
Result<DecoderParts> declare_llama(Weights& weights, Fields& config, const LlamaForm& form);

// The rotation that the config names, in the words of transformers 4 (rope_theta, rope_scaling) or 5 (rope_parameters).
Result<Rotation> rotation_of(Fields& config, double otherwise);

// Of a config with sliding windows: their size where some layer has one; 0: none has.
int64_t window_of(Fields& config, bool by_default);

}  // namespace bowline::import
