// Builds a model from a source. Each architecture has its own file, which the build finds.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "source/finite.h"
#include "source/keys.h"
#include "source/source.h"

namespace bowline::import {

enum class Task : uint8_t { generate, classify, embed };
// "generate"
std::string_view name_of(Task task);

struct BuildOptions {
  std::optional<Task> task = {};  // empty: the task of the source
  // (optional) Class names, in order. The default is the labels of the source.
  std::vector<std::string> labels = {};
  std::optional<DType> dtype = {};  // of the weights; empty: as in the source
  // Dtype of the KV cache. i8: quantized, with a scale per row of a head.
  DType kv_dtype = DType::f32;
  std::string pooling = {};    // "mean", "cls" or "max"; empty: the pooling of the source
  bool multi_label = false;    // a row can have any number of classes
  double label_smoothing = 0;  // of the classification loss
  // Additional ties between tensors of the source. Their bytes must be equal.
  std::vector<std::pair<std::string, std::string>> ties = {};
  // Ties all tensors with equal values. A tensor that repeats one value is tied only if all other
  // tensors of its layer are tied to one other layer.
  bool tie_equal = false;
  // The loss uses the dropout rates of the config, except the rate of attention weights.
  bool dropout = false;
  uint64_t seed = 0;  // of parameters that the source does not have
  // Builds only the shapes from the config. The source has no tensors, and the parameters have no
  // values.
  bool skeleton = false;
};

// The use of a tensor of the source.
struct TensorReport {
  enum class Use : uint8_t { unexpected, taken, tied, dropped };
  std::string name;  // in the source
  std::string stored;
  std::vector<int64_t> shape;
  Use use = Use::unexpected;
  std::string parameter;  // that has the tensor's values
  std::string reason;     // tied: to which tensor and why; dropped: why
};
// "taken"
std::string_view name_of(TensorReport::Use use);

struct Built {
  Model model;
  Task task = Task::generate;
  std::vector<TensorReport> tensors;
  std::vector<std::string> notes;  // sentences
  FiniteCheck finite;              // counts the non-finite values that saving the model reads
};

struct Architecture {
  std::string_view type;  // "llama": model_type in config.json
  Result<Built> (*build)(const Source& source, const BuildOptions& options);
  // Keys of config.json for the architecture and for its family. build_model() adds the keys that
  // all configs share.
  std::array<std::span<const KeyRule>, 2> keys = {};
};

// All architectures. Each file of architectures/ defines `std::span<const Architecture>
// architectures_of_<file>()`.
std::vector<Architecture> architectures();

// Builds the model of the source's architecture, with assets and metadata.
// Errors  bad_file: the config contradicts the tensors, a tensor is missing or unexpected, or tied
//         tensors differ.
//         unsupported: the architecture or a setting is not supported (the message lists what is),
//         or a skeleton is not a decoder.
Result<Built> build_model(const Source& source, const BuildOptions& options);

}  // namespace bowline::import
