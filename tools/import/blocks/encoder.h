// Encoders: a Repeat over bidirectional post-norm layers, and the entry points for embeddings or
// classification.
#pragma once

#include <array>

#include "blocks/text_head.h"
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
  double eps = 1e-12;          // of the norms
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

// Keys of config.json where architectures differ.
struct EncoderKeys {
  const char* layers = "num_hidden_layers";
  const char* width = "hidden_size";
  const char* heads = "num_attention_heads";
  const char* inner = "intermediate_size";
  const char* eps = "layer_norm_eps";  // "": the default
  const char* activation = "hidden_act";
  const char* default_activation = "gelu";
};
// Reads the sizes and the activation.
Result<EncoderParts> encoder_of(Fields& config, const EncoderKeys& keys);

// Tensor names of an architecture. The names of the layers' tensors begin with "<layers>.{}.".
struct EncoderNames {
  const char* layers;
  const char *q, *k, *v, *out, *attention_norm, *up, *down, *feed_forward_norm;
  // (optional) Name prefix of each layer, in place of `layers`. Layers with the same prefix share
  // their tensors.
  std::vector<std::string> of_layer = {};
};

// Declares the tensors of the embeddings and layers, with the sizes of `parts`.
void declare_encoder(Weights& weights, const EncoderNames& names, bool has_types,
                     EncoderParts& parts);

struct EncoderForm {
  Result<EncoderParts> (*declare)(Weights& weights, Fields& config);
  HeadForm head;
  // Tensors of heads for other tasks.
  std::array<std::string_view, 3> other_heads;
};

// Builds the model, its entry points, values and metadata.
Result<Built> build_encoder(const Source& source, const TextImportOptions& options,
                            const EncoderForm& form);
// Architecture::build of an encoder.
template <const EncoderForm& form>
Result<Built> build_encoder(const Source& source, const TextImportOptions& options) {
  return build_encoder(source, options, form);
}

}  // namespace bowline::import
