// Decoder-only models: a Repeat over layers (attention and feed-forward), or over groups of layers,
// and the entry points for generation.
#pragma once

#include "blocks/rotation.h"
#include "blocks/text_head.h"
#include "source/json.h"

namespace bowline::import {

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

// How the attention of a layer sees positions.
struct LayerKind {
  // Sliding window: number of visible tokens, with the current token. In a bidirectional model: of
  // tokens on each side. 0: all (previous) tokens.
  int64_t window = 0;
  std::optional<Rotation> rotation;  // of keys and queries
  bool operator==(const LayerKind&) const = default;
};

struct DecoderParts {
  DecoderSizes sizes;
  Weight embedding;
  std::optional<Weight> positions;  // learned or sinusoidal positions
  int64_t first_position = 0;       // row of `positions` for the first token
  std::optional<Weight> types;      // of tokens: all have type 0
  // (optional) Factor of the token embeddings.
  std::optional<Weight> embedding_scale;
  std::optional<Norm> embedding_norm;
  // (optional) The kind of the first layer. It has no norm before attention, and is not part of the
  // Repeat. The lists of weights have an unused item for it.
  std::optional<LayerKind> first;
  // Layer i (without `first`) has the kind i % size. The size is the number of layers in the body
  // of the Repeat and divides the layer count.
  std::vector<LayerKind> kinds = {{}};
  // Tokens see those behind them, too: an encoder, with the entry points of TextHead.
  bool is_bidirectional = false;
  // The classification head. That of decoders reads the last token, without a projection.
  HeadForm head_form = {.pooling = "last", .has_bias = false, .otherwise = "last"};
  std::string head_activation = {};  // of the projection of `head_form`, which keeps no string
  // (optional) Factors [head_dim] of rotated queries, if the attention factor of a rotation does
  // not hold for all channels.
  std::optional<Weight> query_factors;
  double attention_scale = 0;    // factor of the scores; 0: 1 / sqrt(head_dim)
  double attention_softcap = 0;  // soft-capping of the scores; 0: off
  std::optional<Norm> attention_norm;
  std::optional<Linear> q, k, v;  // or
  std::optional<Linear> qkv;      // a fused product
  // The rows of the fused product are divided into this many equal groups. Each group has queries,
  // then keys, then values; or queries, values, keys.
  int64_t qkv_groups = 1;
  bool values_before_keys = false;
  std::optional<Norm> q_norm, k_norm;  // per head, or of all heads together
  bool norms_all_heads = false;
  bool norms_rotated = false;  // q_norm and k_norm come after the rotation
  Linear out;
  std::optional<Norm> attention_out_norm;  // of the attention output
  // Attention and feed-forward part read the same rows, and both outputs are added. Without a norm
  // of its own, the feed-forward part reads what the attention reads.
  bool is_parallel = false;
  std::optional<Norm> feed_forward_norm;
  // The activated gate is multiplied with `up`. Without a gate, `up` is activated.
  std::optional<Linear> gate, up;  // or
  std::optional<Linear> gate_up;   // a fused product: gate, then up
  bool up_before_gate = false;     // the fused product has them in the other order
  Linear down;
  std::optional<Norm> feed_forward_out_norm;  // of the feed-forward output
  // The two norms above are of the sum of a part's input and output.
  bool norms_sums = false;
  // (optional) Factor of both outputs before they are added.
  std::optional<Weight> residual_scale;
  Activation activation;
  std::optional<Norm> final_norm;
  std::optional<Weight> head;  // empty if the model does not generate text
  std::optional<Weight> head_bias;
  std::optional<Weight> logit_divisor;
  std::optional<Weight> logit_softcap;  // soft-capping: logits = cap * tanh(logits / cap)
  // Dropout rates of the training: for the input of the classifier, for the embeddings, for the
  // output of each part of a layer, and for the input of `down`.
  double pooled_dropout = 0;
  double embedding_dropout = 0;
  double residual_dropout = 0;
  double inner_dropout = 0;
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
// The same for an encoder with the parts of a decoder, which classifies or embeds texts.
Result<Built> build_text_encoder(const Source& source, const TextImportOptions& options,
                                 DeclareDecoder declare);
template <DeclareDecoder declare>
Result<Built> build_text_encoder(const Source& source, const TextImportOptions& options) {
  return build_text_encoder(source, options, declare);
}
// Architecture::build of a decoder.
template <DeclareDecoder declare>
Result<Built> build_decoder(const Source& source, const TextImportOptions& options) {
  return build_decoder(source, options, declare);
}

}  // namespace bowline::import
