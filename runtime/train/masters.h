// The f32 masters of 16-bit storages: which of them hold what their storage holds.
#pragma once

#include <optional>
#include <vector>

#include "params/table.h"

namespace bowline::detail::train {

class Masters {
 public:
  // From now on the masters that `holder` has agree with their storages in `live`; no others do.
  void agree(const params::Table& holder, const params::Table& live);
  // Storages that were written since they were loaded have their own values: a file gives version
  // 1.
  void forget_written(const params::Table& table);
  // An update rounded every master that agrees into its storage.
  void updated(const params::Table& table);
  // Gives each master the values of its storage, unless the two agree. Call it before masters are
  // read or kept.
  Status fill(params::Table& table);

 private:
  std::vector<std::optional<uint64_t>> versions_;  // by tie: of the storage that its master holds
};

}  // namespace bowline::detail::train
