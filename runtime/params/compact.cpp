#include "params/verbs.h"

namespace bowline::detail::params {

Compacted compacted(const Table& table) {
  Compacted out;
  std::vector<uint32_t> numbers(table.storages.size());
  std::vector<Storage> rows;
  for (uint32_t tie = 0; tie < table.storages.size(); ++tie) {
    numbers[tie] = static_cast<uint32_t>(rows.size());
    if (table.storages[tie].empty) {
      continue;
    }
    if (numbers[tie] != tie) {
      out.report.renumbered.push_back({tie, numbers[tie]});
    }
    rows.push_back(table.storages[tie]);
  }
  out.report.dropped = static_cast<uint32_t>(table.storages.size() - rows.size());
  for (Storage& row : rows) {
    row.owner = row.owner == kNoOwner
                    ? kNoOwner
                    : static_cast<int32_t>(numbers[static_cast<size_t>(row.owner)]);
  }
  out.table = Table(std::move(rows));
  for (const ParameterRow& p : table.parameters) {
    ParameterRow row = p;
    row.tie = numbers[p.tie];
    out.table.add(std::move(row));
  }
  return out;
}

}  // namespace bowline::detail::params
