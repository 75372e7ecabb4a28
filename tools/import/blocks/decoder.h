// Decoder-only models: one Repeat over pre-norm layers of attention and a feed-forward part, or
// over groups of them, with the entry points of generation.
#pragma once

#include <functional>

#include "blocks/layers.h"

namespace bowline::import {

// Of Rope, as configs of Hugging Face have it.
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
  int64_t inner = 0;  // of the feed-forward part
  int64_t vocabulary = 0;
  int64_t context = 0;  // tokens that the model was made for
};

struct DecoderParts {
  DecoderSizes sizes;
  Weight embedding;
  std::optional<Weight> positions;   // learned ones; else
  std::optional<Rotation> rotation;  // keys and queries are rotated
  // (optional) What embedded tokens are multiplied with.
  std::optional<Weight> embedding_scale;
  // Tokens that the attention of a layer sees at most, the last of them its own; 0: all in front of
  // it. Layer i has number i % size: so many layers are the body of the Repeat, and they divide
  // all.
  std::vector<int64_t> windows = {0};
  double attention_scale = 0;    // of scores; 0: 1 / sqrt(head_dim)
  double attention_softcap = 0;  // of scores; 0: none
  Norm attention_norm;
  std::optional<Linear> q, k, v;       // or
  std::optional<Linear> qkv;           // all three behind one another
  std::optional<Norm> q_norm, k_norm;  // of each head
  Linear out;
  std::optional<Norm> attention_out_norm;  // of what attention adds
  Norm feed_forward_norm;
  std::optional<Linear>
      gate;  // the activation of it is multiplied with `up`; none: that of `up` is taken
  Linear up, down;
  std::optional<Norm> feed_forward_out_norm;  // of what the feed-forward part adds
  Activation activation;
  Norm final_norm;
  Weight head;
  std::optional<Weight> logit_softcap;  // logits are this times tanh of a part of it
  // Rates of dropout while it is trained: of the embeddings, and of what each part of a layer adds.
  double embedding_dropout = 0;
  double residual_dropout = 0;
};

// Adds the cache and the entry points loss, forward, prefill and decode. Errors  unsupported;
// internal.
Status add_decoder(Model& model, Weights& weights, const DecoderParts& parts,
                   const BuildOptions& options);

// Builds, from what a part declares: the model, its entry points, values and metadata.
Result<Built> build_decoder(const Source& source, const BuildOptions& options,
                            const std::function<Result<DecoderParts>(Weights&)>& declare);

}  // namespace bowline::import
