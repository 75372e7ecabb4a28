/// \file
/// Options of Model::open() and Model::load().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bowline/budget.h"
#include "bowline/describe.h"
#include "bowline/status.h"
#include "bowline/tensor.h"

#pragma GCC visibility push(default)

namespace bowline {

/// Options of Model::open().
struct OpenOptions {
  /// true: maps the file into memory and reads weights when they are needed. false: reads the whole
  /// file at once.
  bool memory_map = true;
  /// Limits for opening the file. The default is Budget::of_file().
  std::optional<Budget> budget;
  /// true: opens a file whose metadata contradicts its ties. false: open() returns bad_file.
  ///
  /// The metadata entries are "tied_to.<parameter>" = "<parameter>" and "tie_word_embeddings" =
  /// "true" or "false". Model::save() corrects or removes contradicting entries.
  bool ignore_tie_metadata = false;
};

/// How Model::load() treats dtypes and shapes.
enum class LoadMode : uint8_t {
  copy,    ///< Dtypes and shapes of file and model must be the same.
  assign,  ///< The model takes dtypes and shapes from the file.
};

/// A parameter of the model, and the parameter of the file that is loaded into it.
struct LoadedParameter {
  ParameterInfo here;        ///< The parameter of the model.
  StorageInfo storage_here;  ///< The storage of `here`.
  ParameterInfo file;        ///< The parameter of the file.
  StorageInfo storage_file;  ///< The storage of `file`.
};

/// Values that a LoadHook returns.
struct LoadedValue {
  DType dtype = DType::f32;
  TensorShape shape;
  std::vector<std::byte> bytes;  ///< Values of `dtype`, not quantized. Contiguous and row-major.
  /// (optional) load() quantizes the values in this encoding; see quantize().
  ///
  /// The storage of the model must have this encoding already, or the mode must be LoadMode::assign
  /// and the storage frozen.
  std::string encoding = {};
};

/// Replaces values while Model::load() reads them, for example to transpose a weight.
///
/// `value` holds the values of the file; quantized values are dequantized. The hook returns the
/// values to load instead, or nothing to load the file's. If the hook fails, load() fails.
///
/// The hook is called once for tied parameters with the same view. It must not change the model.
using LoadHook = std::function<Result<std::optional<LoadedValue>>(const LoadedParameter& of,
                                                                  const Tensor& value)>;

/// Options of Model::load().
struct LoadOptions {
  LoadMode mode = LoadMode::copy;
  /// false: load() fails if a parameter exists only in the file or only in the model. true: load()
  /// skips such parameters.
  bool partial = false;
  /// Pairs of names of a parameter: in the file, in the model.
  std::vector<std::pair<std::string, std::string>> aliases = {};
  LoadHook hook = {};
};

/// The result of Model::load().
struct LoadReport {
  uint32_t storages = 0;                ///< Storages that were loaded.
  std::vector<std::string> missing;     ///< Parameters of the model that the file does not have.
  std::vector<std::string> unexpected;  ///< Parameters of the file that the model does not have.
};

}  // namespace bowline

#pragma GCC visibility pop
