#include "exec/hoisted.h"

namespace bowline::detail::exec {

bool Hoisted::is_right(const params::Table& table) const {
  const auto version = [&](const plan::StorageSlot& slot) {
    return table.storages[slot.tie].version;
  };
  return versions_ && std::ranges::equal(segment_.plan().storages, *versions_, {}, version);
}

void Hoisted::computed(const params::Table& table) {
  versions_.emplace();
  for (const plan::StorageSlot& slot : segment_.plan().storages) {
    versions_->push_back(table.storages[slot.tie].version);
  }
}

bool Hoisted::differs(const params::Table& table, const params::Table& other) const {
  return std::ranges::any_of(segment_.plan().storages, [&](const plan::StorageSlot& slot) {
    return table.storages[slot.tie].home.block != other.storages[slot.tie].home.block;
  });
}

}  // namespace bowline::detail::exec
