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
  /// Limits for opening the file. If not set: Budget::of_file().
  std::optional<Budget> budget;
  /// What to do if the metadata contradicts the ties of the model. false: Model::open() fails.
  /// true: the metadata is ignored.
  ///
  /// The metadata entries are "tied_to.<parameter>" = "<parameter>" and "tie_word_embeddings" =
  /// "true" or "false". Model::save() writes entries that agree with the ties.
  bool ignore_tie_metadata = false;
};

/// How Model::load() treats dtypes and shapes.
enum class LoadMode : uint8_t {
  copy,    ///< Dtypes and shapes of file and model must be the same.
  assign,  ///< The model takes dtypes and shapes from the file.
};

/// A parameter in a file and the parameter of the model for which it is loaded.
struct LoadedParameter {
  ParameterInfo here;        ///< The parameter of the model.
  StorageInfo storage_here;  ///< Its storage.
  ParameterInfo file;        ///< The parameter of the file.
  StorageInfo storage_file;  ///< Its storage.
};

/// Values that a LoadHook returns.
struct LoadedValue {
  DType dtype = DType::f32;
  TensorShape shape;
  std::vector<std::byte> bytes;  ///< Contiguous and row-major.
  /// (optional) The encoding of quantized values, as quantize() takes it. It is allowed with
  /// LoadMode::assign, for a frozen storage.
  std::string encoding = {};
};

/// Replaces values while Model::load() reads them, for example to transpose a weight.
///
/// `value` holds the values in the file. Returns the values to load instead, or nothing to load
/// `value`. An error ends load() with this error.
///
/// Tied parameters with the same view share one call. The hook must not change the model.
using LoadHook = std::function<Result<std::optional<LoadedValue>>(const LoadedParameter& of,
                                                                  const Tensor& value)>;

/// Options of Model::load().
struct LoadOptions {
  LoadMode mode = LoadMode::copy;
  /// true: loads the parameters that both file and model have. false: load() fails if one of them
  /// has a parameter that the other does not have.
  bool partial = false;
  /// Pairs of names: a parameter of the file, and its name in the model.
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
