// Tracks which f32 masters match their 16-bit storages.
#pragma once

#include <optional>
#include <vector>

#include "params/table.h"

namespace bowline::detail::train {

// A master *matches* its storage if rounding the master gives the values of the storage.
class Masters {
 public:
  // Marks the masters in `holder` as matching their storages in `live`, and no others.
  void agree(const params::Table& holder, const params::Table& live);
  // Unmarks the masters of storages that were written since the model was opened. A storage from a
  // file starts at version 1.
  void forget_written(const params::Table& table);
  // Call it after an update, which rounded each marked master to its storage. They still match.
  void updated(const params::Table& table);
  // Copies the values of its storage to each master that is not marked, and marks it. Call it
  // before masters are read or saved.
  Status fill(params::Table& table);

 private:
  std::vector<std::optional<uint64_t>> versions_;  // by tie: version of the storage that matches
};

}  // namespace bowline::detail::train
