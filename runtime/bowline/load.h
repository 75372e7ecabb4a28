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

/// Options of Model::open(), open_memory(), open_descriptor() and open_reader().
struct OpenOptions {
  /// true: maps the file into memory and reads weights when they are needed. false: reads the whole
  /// file at once. open_memory() then copies the bytes.
  bool memory_map = true;
  /// Limits for opening the file. The default is Budget::of_file().
  std::optional<Budget> budget;
  /// false: open() returns bad_file if the metadata contradicts the ties of the file. The metadata
  /// entries are "tied_to.<parameter>" and "tie_word_embeddings".
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
  /// (optional) load() quantizes the values in this encoding; see quantize(). The storage must have
  /// this encoding already, or must be frozen and loaded with LoadMode::assign.
  std::string encoding = {};
};

/// Replaces values while Model::load() reads them, for example to transpose a weight.
///
/// `value` holds the dequantized values of the file. The hook returns the values to load instead,
/// or std::nullopt to load `value`. If the hook fails, load() fails. The hook must not change the
/// model. It is called once for tied parameters with the same view.
using LoadHook = std::function<Result<std::optional<LoadedValue>>(const LoadedParameter& of,
                                                                  const Tensor& value)>;

/// Options of Model::load().
struct LoadOptions {
  LoadMode mode = LoadMode::copy;
  /// true: load() skips parameters that only the file or only the model has. false: it fails.
  bool partial = false;
  /// Parameters with another name in the file: the name in the file, the name in the model.
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
