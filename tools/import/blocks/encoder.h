// Encoders: a Repeat over bidirectional post-norm layers, and the entry points for embeddings or
// classification.
#pragma once

#include <functional>

#include "blocks/layers.h"
#include "source/json.h"

namespace bowline::import {

struct EncoderSizes {
  int64_t layers = 0;
  int64_t width = 0;
  int64_t embedding_width = 0;  // 0: same as `width`
  int64_t heads = 0;
  int64_t inner = 0;
  int64_t vocabulary = 0;
  int64_t positions = 0;       // rows of the position table
  int64_t first_position = 0;  // position row of the first token
};

struct EncoderParts {
  EncoderSizes sizes;
  Weight words, positions;
  std::optional<Weight> types;  // all tokens are of type 0
  // (optional) The padding id, f32 [1]. A padding token within a text has the row before the first
  // position, and does not count as a position.
  std::optional<Weight> padding;
  Norm embedding_norm;
  std::optional<Linear> embedding_projection;  // to the width
  Linear q, k, v, out;
  Norm attention_norm;  // after the residual sum
  Linear up, down;
  Activation activation;
  Norm feed_forward_norm;  // after the residual sum
  // Dropout rates of the training: for the embeddings, the attention output, the feed-forward
  // output, and the input of the classifier.
  struct Dropout {
    double embedding = 0;
    double attention = 0;
    double feed_forward = 0;
    double pooled = 0;
  };
  Dropout dropout = {};
};

// Tensor names of an architecture. The names of the layers' tensors begin with "<layers>.{}.".
struct EncoderNames {
  const char* layers;
  const char *q, *k, *v, *out, *attention_norm, *up, *down, *feed_forward_norm;
  // (optional) Name prefix of each layer, in place of `layers`. Layers with the same prefix share
  // their tensors.
  std::vector<std::string> of_layer = {};
};

// The projection between the pooled token and the classifier.
struct ProjectionForm {
  const char* name;  // "pooler.dense"
  const char* activation;
  bool drops_before = false;  // Dropout before the projection, too
};

// Declares the tensors of the embeddings and layers.
EncoderParts declare_encoder(Weights& weights, const EncoderSizes& sizes, const EncoderNames& names,
                             bool has_types, double eps, Activation activation);

struct EncoderForm {
  std::function<Result<EncoderParts>(Weights&)> declare;
  ProjectionForm projection;
  // Tensors of heads for other tasks.
  std::vector<std::string_view> other_heads;
};

// Builds the model, its entry points, values and metadata.
Result<Built> build_encoder(const Source& source, const BuildOptions& options,
                            const EncoderForm& form);

}  // namespace bowline::import
