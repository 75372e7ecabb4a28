#include "train/masters.h"

#include "params/home.h"

namespace bowline::detail::train {

void Masters::agree(const params::Table& holder, const params::Table& live) {
  versions_.assign(live.storages.size(), std::nullopt);
  for (uint32_t tie = 0; tie < std::min(holder.storages.size(), live.storages.size()); ++tie) {
    if (holder.owned(tie, params::Role::master, 0)) {
      versions_[tie] = live.storages[tie].version;
    }
  }
}

void Masters::forget_written(const params::Table& table) {
  for (uint32_t tie = 0; tie < versions_.size(); ++tie) {
    if (table.storages[tie].version > 1) {
      versions_[tie].reset();
    }
  }
}

void Masters::updated(const params::Table& table) {
  for (uint32_t tie = 0; tie < versions_.size(); ++tie) {
    if (versions_[tie]) {
      versions_[tie] = table.storages[tie].version;
    }
  }
}

Status Masters::fill(params::Table& table) {
  versions_.resize(table.storages.size());
  std::vector<std::byte> scratch;
  for (uint32_t tie = 0; tie < table.storages.size(); ++tie) {
    const auto row = table.owned(tie, params::Role::master, 0);
    const params::Storage& storage = table.storages[tie];
    if (!row || versions_[tie] == storage.version || !table.storages[*row].home.block) {
      continue;
    }
    const params::Storage& master = table.storages[*row];
    BOWLINE_TRY_ASSIGN(const params::Bytes values, params::read_all(storage, scratch));
    BOWLINE_TRY(params::require_host_memory(master.bytes()));
    std::vector<std::byte> wide(master.bytes());
    params::convert_floats(values, storage.dtype, wide, master.dtype);
    BOWLINE_TRY(master.home.block->write(0, wide));
    table.wrote(*row);
    versions_[tie] = storage.version;
  }
  return {};
}

}  // namespace bowline::detail::train
