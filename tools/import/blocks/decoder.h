// Decoder-only models: a Repeat over pre-norm layers (attention and feed-forward), or over groups
// of layers, and the entry points for generation.
#pragma once

#include "blocks/layers.h"
#include "source/json.h"

namespace bowline::import {

// Attributes of Rope, as in a Hugging Face config.
struct Rotation {
  double base = 10000;
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  int64_t original_length = 8192;
  bool operator==(const Rotation&) const = default;
};

struct DecoderSizes {
  int64_t layers = 0;
  int64_t width = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t inner = 0;  // width of the feed-forward part
  int64_t vocabulary = 0;
  int64_t context = 0;  // context length of the training, in tokens
};

struct DecoderParts {
  DecoderSizes sizes;
  Weight embedding;
  std::optional<Weight> positions;   // learned positions, or
  std::optional<Rotation> rotation;  // rotary positions of keys and queries
  // (optional) Factor of the token embeddings.
  std::optional<Weight> embedding_scale;
  // Sliding window of each layer: number of visible tokens, with the current token. 0: all previous
  // tokens. Layer i uses entry i % size. The size is the number of layers in the body of the Repeat
  // and divides the layer count.
  std::vector<int64_t> windows = {0};
  double attention_scale = 0;    // factor of the scores; 0: 1 / sqrt(head_dim)
  double attention_softcap = 0;  // soft-capping of the scores; 0: off
  Norm attention_norm;
  std::optional<Linear> q, k, v;       // or
  std::optional<Linear> qkv;           // a fused product: q, then k, then v
  std::optional<Norm> q_norm, k_norm;  // per head
  Linear out;
  std::optional<Norm> attention_out_norm;  // of the attention output
  Norm feed_forward_norm;
  // The activated gate is multiplied with `up`. Without a gate, `up` is activated.
  std::optional<Linear> gate;
  Linear up, down;
  std::optional<Norm> feed_forward_out_norm;  // of the feed-forward output
  Activation activation;
  Norm final_norm;
  Weight head;
  std::optional<Weight> logit_softcap;  // soft-capping: logits = cap * tanh(logits / cap)
  // Dropout rates of the training: for the embeddings, and for the output of each part of a layer.
  double embedding_dropout = 0;
  double residual_dropout = 0;
};

// Adds the cache and the entry points loss, forward, prefill and decode.
// Errors  unsupported; internal.
Status add_decoder(Model& model, Weights& weights, const DecoderParts& parts,
                   const TextImportOptions& options);

// Declares the tensors of an architecture.
using DeclareDecoder = Result<DecoderParts> (*)(Weights& weights, Fields& config);

// Builds the model, its entry points, values and metadata from the declared parts.
Result<Built> build_decoder(const Source& source, const TextImportOptions& options,
                            DeclareDecoder declare);
// Architecture::build of a decoder.
template <DeclareDecoder declare>
Result<Built> build_decoder(const Source& source, const TextImportOptions& options) {
  return build_decoder(source, options, declare);
}

}  // namespace bowline::import
