/// \file
/// Weight formats: place several storages in one allocation of a device.
///
/// Some kernels are faster if a group of weights is adjacent in memory, for example all weights of
/// an LSTM. A weight format computes the offset of each storage of the group in one allocation. The
/// library has one format, "flat". The format does not affect parameters, values or files.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bowline/model.h"
#include "bowline/status.h"

#pragma GCC visibility push(default)

namespace bowline {

/// The allocation of a group. The bytes between storages are zero.
struct FormatLayout {
  uint64_t bytes = 0;             ///< Size of the allocation.
  std::vector<uint64_t> offsets;  ///< One per storage, in bytes: a multiple of the element size.
};

/// A weight format.
struct WeightFormat {
  std::string name;
  /// Operators that the format is for, for example "Lstm". At least one of these operators must
  /// read a storage of the group. Empty: no condition.
  std::vector<std::string> ops;
  std::string device = "*";  ///< Pattern of the device names that the format is for.
  std::string about;         ///< Description in one line.
  /// Computes the layout of a group. The storages are ordered by tie index. The function must not
  /// change the model.
  std::function<Result<FormatLayout>(std::span<const StorageInfo>)> layout;
};

/// The result of set_weight_format().
struct FormatReport {
  std::string format;
  std::vector<uint32_t> ties;  ///< Tie indices of the storages in the group, ascending.
  uint64_t bytes = 0;          ///< Size of the allocation.
};

/// A weight format as weight_formats() lists it; see WeightFormat.
struct FormatInfo {
  std::string name;
  std::vector<std::string> ops;
  std::string device;
  std::string about;
};

/// Moves the storages of the parameters that match `pattern` into one allocation of their device.
///
/// These storages become a group. Each of them leaves its earlier group, which is dissolved. If a
/// storage of the group is replaced or moved later, the library computes a new layout.
///
/// Errors:
/// - bad_argument: no parameter matches, or the storages are not on one device.
/// - bad_argument: no format has this name. The message lists the names.
/// - bad_argument: the format is for other devices or operators, or its layout is invalid.
/// - The error that WeightFormat::layout returns.
Result<FormatReport> set_weight_format(Model& model, std::string_view format,
                                       std::string_view pattern = "*");

/// Dissolves all groups with a matching parameter: each storage gets its own allocation again.
///
/// Returns the number of dissolved groups.
Result<uint32_t> restore_weight_format(Model& model, std::string_view pattern = "*");

/// Adds a weight format to a model.
///
/// Errors:
/// - bad_argument: the name is taken, or `layout` is empty.
Status register_weight_format(Model& model, WeightFormat format);

/// Returns all weight formats of a model: those of the library, then the registered ones.
std::vector<FormatInfo> weight_formats(const Model& model);

}  // namespace bowline

#pragma GCC visibility pop
