// The rows that belong to others (gradients, moments), by owner, role and slot, found in one pass over a table.
#pragma once

#include <map>
#include <tuple>

#include "params/table.h"

namespace bowline::params {

class OwnedRows {
 public:
  explicit OwnedRows(const Table& table) {
    for (uint32_t row = 0; row < table.storages.size(); ++row) {
      const Storage& s = table.storages[row];
      if (!s.empty && s.owner != kNoOwner) {
        rows_.try_emplace({static_cast<uint32_t>(s.owner), s.role, s.slot}, row);
      }
    }
  }

  std::optional<uint32_t> find(uint32_t owner, Role role, uint32_t slot) const {
    const auto found = rows_.find({owner, role, slot});
    return found == rows_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::map<std::tuple<uint32_t, Role, uint32_t>, uint32_t> rows_;
};

}  // namespace bowline::params
