#include "params/verbs.h"

namespace bowline::detail::params {

// Host memory and files are never written in place (a write makes new bytes), so only device blocks
// are copied.
Result<Table> clone(const Table& table) {
  Table out = table;
  out.shrink(table.used_rows(), table.parameters.size());
  drop_training(out);
  for (uint32_t tie = 0; tie < out.storages.size(); ++tie) {
    const Home& from = table.storages[tie].home;
    if (out.storages[tie].empty) {
      continue;
    }
    const auto copy = [&]() -> Status {
      Home home = from;
      if (from.block) {
        BOWLINE_TRY_ASSIGN(home.block, from.block->copied(0, from.block->bytes()));
      }
      for (std::shared_ptr<device::Block>& shard : home.shards) {
        BOWLINE_TRY_ASSIGN(shard, shard->copied(0, shard->bytes()));
      }
      out.set_home(tie, std::move(home));  // the clone shares no copies or replicas
      return {};
    };
    BOWLINE_TRY(copy().at(format("While copying storage {}.", tie)));
  }
  return out;
}

Table skeleton(const Table& table) {
  Table out = table;
  out.shrink(table.used_rows(), table.parameters.size());
  drop_training(out);
  std::vector<FormatGroup> groups = table.formats();
  for (FormatGroup& g : groups) {
    g.whole.reset();
  }
  out.set_formats(std::move(groups));
  out.set_counters({});
  for (uint32_t tie = 0; tie < out.storages.size(); ++tie) {
    Storage row = out.storages[tie];
    row.home = {};
    row.copies.clear();
    row.replicas.clear();
    row.version = 0;
    out.put(tie, std::move(row));
  }
  return out;
}

}  // namespace bowline::detail::params
