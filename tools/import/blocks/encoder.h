// Encoders: one Repeat over post-norm layers that see all tokens, with the entry points of
// embeddings or of classes.
#pragma once

#include <functional>

#include "blocks/layers.h"
#include "source/json.h"

namespace bowline::import {

struct EncoderSizes {
  int64_t layers = 0;
  int64_t width = 0;
  int64_t embedding_width = 0;  // 0: the width
  int64_t heads = 0;
  int64_t inner = 0;
  int64_t vocabulary = 0;
  int64_t positions = 0;       // rows of their table
  int64_t first_position = 0;  // row of the first token
};

struct EncoderParts {
  EncoderSizes sizes;
  Weight words, positions;
  std::optional<Weight> types;  // all tokens are of type 0
  // (optional) The id of padding, f32 [1]. Padding within a text has the row in front of the first
  // position, and is not counted.
  std::optional<Weight> padding;
  Norm embedding_norm;
  std::optional<Linear> embedding_projection;  // to the width
  Linear q, k, v, out;
  Norm attention_norm;  // behind the sum
  Linear up, down;
  Activation activation;
  Norm feed_forward_norm;  // behind the sum
  // Rates of dropout while it is trained: of the embeddings, of what attention and the feed-forward
  // part add, of what the classes read.
  struct Dropout {
    double embedding = 0;
    double attention = 0;
    double feed_forward = 0;
    double pooled = 0;
  };
  Dropout dropout = {};
};

// How an architecture names what its layers are made of; the tensors of the layers begin with
// "<layers>.{}.".
struct EncoderNames {
  const char* layers;
  const char *q, *k, *v, *out, *attention_norm, *up, *down, *feed_forward_norm;
  // (optional) For each layer the begin of its tensors, instead of `layers`: layers with the same
  // one share them.
  std::vector<std::string> of_layer = {};
};

// What stands between a pooled token and the classes.
struct ProjectionForm {
  const char* name;  // "pooler.dense"
  const char* activation;
  bool drops_before = false;  // Dropout stands in front of it, as behind it
};

// The tensors of the embeddings and of the layers.
EncoderParts declare_encoder(Weights& weights, const EncoderSizes& sizes, const EncoderNames& names,
                             bool has_types, double eps, Activation activation);

struct EncoderForm {
  std::function<Result<EncoderParts>(Weights&)> declare;
  ProjectionForm projection;
  // Tensors of heads of other tasks.
  std::vector<std::string_view> other_heads;
};

// Builds the model with its entry points, values and metadata.
Result<Built> build_encoder(const Source& source, const BuildOptions& options,
                            const EncoderForm& form);

}  // namespace bowline::import
