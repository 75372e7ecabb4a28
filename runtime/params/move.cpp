#include <numeric>

#include "params/chosen.h"
#include "params/home.h"
#include "params/stage.h"
#include "params/verbs.h"

namespace bowline::detail::params {
namespace {

bool is_there(const Home& home, const std::shared_ptr<device::OpenDevice>& device) {
  return device ? home.block && home.block->device_handle() == device
                : home.block == nullptr && home.shards.empty();
}

bool is_for_plans(const std::shared_ptr<device::OpenDevice>& device) {
  return device != nullptr && !device->has_memory();
}

bool has_to_move(const Storage& s, const std::shared_ptr<device::OpenDevice>& device) {
  const bool waits_for_a_trainer = is_training(s.role) && !s.home.block;
  const bool has_values = s.home.valid() || (is_for_plans(device) && !s.empty);
  return has_values && !is_there(s.home, device) && !waits_for_a_trainer;
}

Result<Home> moved(const Storage& storage, const std::shared_ptr<device::OpenDevice>& device) {
  if (is_for_plans(device)) {
    Home home;
    BOWLINE_TRY_ASSIGN(home.block, device::Block::allocate(device, storage.bytes()));
    return home;
  }
  if (device && storage.home.file) {
    Home home;
    BOWLINE_TRY_ASSIGN(home.block, device::Block::allocate(device, storage.bytes()));
    const auto write = [&](uint64_t at, Bytes piece) { return home.block->write(at, piece); };
    BOWLINE_TRY(storage.home.file->each_piece(write));
    return home;
  }
  std::vector<std::byte> scratch;
  BOWLINE_TRY_ASSIGN(const Bytes bytes, read_all(storage, scratch));
  return make_home(device, bytes);
}

// Moves the storages `ties` to `device`. `homes` is the device for new bytes from then on. Returns
// false if nothing had to change.
Result<bool> move_rows(Table& table, std::span<const uint32_t> ties,
                       const std::shared_ptr<device::OpenDevice>& device,
                       const std::shared_ptr<device::OpenDevice>& homes, int busy) {
  device::Demand demand;
  std::vector<uint32_t> moving, replicated;
  for (const uint32_t tie : ties) {
    if (!table.storages[tie].replicas.empty()) {
      replicated.push_back(tie);
    }
    if (has_to_move(table.storages[tie], device)) {
      moving.push_back(tie);
      demand.add(table.storages[tie].bytes(), device::MemoryKind::device);
    }
  }
  if (moving.empty() && replicated.empty() && table.device() == homes) {
    return false;
  }
  BOWLINE_TRY_ASSIGN(Stage stage, Stage::begin(table, busy, "to()"));
  if (device) {
    const bool all = ties.size() == table.storages.size();
    BOWLINE_TRY(device->require_room(demand).at(
        all ? "While reserving memory for all storages."
            : format("While reserving memory for {} storages.", moving.size())));
  }
  for (const uint32_t tie : moving) {
    Storage& storage = stage.storage(tie);
    const std::string place = format("While moving storage {} to {}.", tie,
                                     device ? device->info().name : std::string("host memory"));
    BOWLINE_TRY_ASSIGN(storage.home, in_context(moved(storage, device), place));
    ++storage.generation;
  }
  for (const uint32_t tie : replicated) {
    stage.storage(tie).replicas.clear();
  }
  stage.set_device(homes);
  stage.commit();
  return true;
}

}  // namespace

Result<bool> move(Table& table, const std::shared_ptr<device::OpenDevice>& device, int busy) {
  std::vector<uint32_t> all(table.storages.size());
  std::iota(all.begin(), all.end(), 0u);
  return move_rows(table, all, device, device, busy);
}

Result<bool> move(Table& table, const std::shared_ptr<device::OpenDevice>& device,
                  std::string_view pattern, int busy) {
  BOWLINE_TRY_ASSIGN(const std::vector<Chosen> storages, chosen(table, pattern));
  std::vector<uint32_t> rows;
  for (const auto& [tie, name] : storages) {
    const std::vector<uint32_t> owned = sorted(table.owned(tie));
    rows.push_back(tie);
    rows.insert(rows.end(), owned.begin(), owned.end());
  }
  return move_rows(table, rows, device, table.device(), busy);
}

}  // namespace bowline::detail::params
