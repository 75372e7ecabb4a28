// Heads over the hidden rows of texts: one vector per text, or the classes of a text.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "blocks/layers.h"

namespace bowline::import {

// The hidden rows of a graph, f32 [batch, seq, width], and its inputs.
struct HiddenRows {
  Value tokens, hidden;          // tokens: i32 [batch, seq]
  std::optional<Value> lengths;  // i32 [batch]; empty: the layers do not read it
};
// Which texts a graph reads. A graph can read several sets of texts.
struct RowsOf {
  bool trains = false;      // with the dropout of the training
  std::string prefix = {};  // of the names of the inputs: "tokens", "lengths"
  int first_stream = 0;     // of the dropout: each set of texts has its own random values
};
// Adds the inputs and layers to a graph.
using AddRows = std::function<HiddenRows(GraphBuilder& g, const RowsOf& of)>;

// The projection before the classifier: of the pooled vector, or of each token (`before_pooling`,
// `of_tags`).
struct ProjectionForm {
  std::string_view name = {};  // "pooler.dense"; empty: none
  std::string_view activation = {};
  bool drops_before = false;  // Dropout before the projection, too
  bool has_bias = true;
  // (optional) A layer norm behind the activation, with or without a bias.
  std::string_view norm = {};
  bool has_norm_bias = true;
  double eps = 1e-5;
  bool before_pooling = false;  // projects each token, and then pools
  bool of_tags = false;         // a head for tokens applies the projection, too
};

// The classification head of an architecture in transformers.
struct HeadForm {
  std::string_view pooling;  // what the head reads: "cls", "last" or "mean"
  bool has_bias = true;
  ProjectionForm projection = {};
  // The default pooling of embeddings, and of a new classifier without a projection.
  std::string_view otherwise = "mean";
};

struct TextHead {
  ImportTask task = ImportTask::embed;
  std::string pooling;
  bool normalize = false;
  bool multi_label = false;  // a row can have any number of classes
  bool has_head = false;     // the source has the head of the task
  bool has_project = false;  // the model uses the projection of the source
  // Of a classifier of texts or tokens:
  std::optional<Linear> projection;
  Activation activation;
  std::optional<Norm> norm;  // behind the activation
  bool drops_before_projection = false;
  bool projects_tokens = false;  // and then pools
  Linear classifier;
  int64_t classes = 0;
  Weight class_weights;
  double dropout = 0;  // rate of the input of the classifier, in a training
  // Of a model for embeddings: constants [1] of its losses.
  Weight similarity_scale, triplet_margin;
  std::vector<int64_t> widths;  // of shortened embeddings
};

// Returns the task that the first entry of "architectures" in the config names: `classify` for
// ...ForSequenceClassification, `tag` for ...ForTokenClassification. Returns `classify` if there is
// no "architectures", and an empty value for other names. Does not check whether the head exists.
std::optional<ImportTask> task_of_head(const Source& source);

// Reads the task, the pooling and the tensors of the classifier ("classifier.weight"), sets the
// labels of the model, and drops the tensors of unused heads. `width`: of the hidden rows.
// Errors  bad_argument: an option contradicts the source, or labels are missing.
//         bad_file: the config contradicts the head.
//         unsupported: the head, or the side of truncation, is not supported.
Result<TextHead> declare_head(const Source& source, const TextImportOptions& options,
                              const HeadForm& form, int64_t width, Weights& weights, Model& model);

// Adds the entry point `forward`, which returns the hidden rows. A model for embeddings also gets
// `embed` and the losses of embed_losses.h. A text classifier gets `classify` and `loss`. A
// token classifier gets `tag` ("logits", f32 [batch, seq, classes]) and `loss`. The input "labels"
// of this loss is i32 [batch, seq]; it ignores tokens with the label -100. `dtype`: of the
// computation.
Status add_head(Model& model, DType dtype, const TextHead& head, const AddRows& rows, int64_t width,
                const TextImportOptions& options);

// Sets the metadata of the head, the size of the vocabulary, the width of embeddings, and the
// maximum length in tokens: the smaller of `positions` and the limit of the source.
Status describe_head(const Source& source, const TextHead& head, int64_t width, int64_t positions,
                     int64_t vocabulary, Model& model);

}  // namespace bowline::import
