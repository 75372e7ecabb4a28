// What makes a model of a source: one file for each architecture, which the build finds.
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
  std::optional<Task> task = {};  // none: what the source is for
  // (optional) Of the classes, in their order; else those of the source.
  std::vector<std::string> labels = {};
  std::optional<DType> dtype = {};  // of the weights; none: as the source has them
  DType kv_dtype =
      DType::f32;  // of the cache of keys and values; i8: codes with a scale for each row of a head
  std::string pooling = {};    // "mean", "cls" or "max"; empty: that of the source
  bool multi_label = false;    // any number of classes each
  double label_smoothing = 0;  // of the loss of classes
  // Tensors of the source that are tied though it does not say so; their bytes must be equal.
  std::vector<std::pair<std::string, std::string>> ties = {};
  // Tensors of equal values become one weight. Those that repeat one value do only if all other
  // tensors of their layer are tied to one other layer.
  bool tie_equal = false;
  bool dropout = false;  // the loss has that of the config, but for that of attention weights
  uint64_t seed = 0;     // of what the source has not
  // Shapes alone, as the config asks for them: the source has no tensors, and no parameter has
  // values.
  bool skeleton = false;
};

// What became of a tensor of the source.
struct TensorReport {
  enum class Use : uint8_t { unexpected, taken, tied, dropped };
  std::string name;  // as the source has it
  std::string stored;
  std::vector<int64_t> shape;
  Use use = Use::unexpected;
  std::string parameter;  // that shows it
  std::string reason;     // tied: to what and why; dropped: why
};
// "taken"
std::string_view name_of(TensorReport::Use use);

struct Built {
  Model model;
  Task task = Task::generate;
  std::vector<TensorReport> tensors;
  std::vector<std::string> notes;  // sentences
  FiniteCheck finite;              // knows the values that saving the model has read
};

struct Architecture {
  std::string_view type;  // "llama": model_type in config.json
  Result<Built> (*build)(const Source& source, const BuildOptions& options);
  // Of config.json: its own, and those of its family. build_model() adds what all configs have.
  std::array<std::span<const KeyRule>, 2> keys = {};
};

// Those of all files of architectures/, in their order. Each defines `std::span<const Architecture>
// architectures_of_<file>()`.
std::vector<Architecture> architectures();

// Of the source's architecture, with the assets and the metadata that it has. Errors  bad_file: the
// config contradicts the tensors;
// tensors are missing, or unexpected; tied ones differ. unsupported: the architecture, or what the
// config asks for, is not known; what is known is named; a skeleton of what is no decoder.
Result<Built> build_model(const Source& source, const BuildOptions& options);

}  // namespace bowline::import
