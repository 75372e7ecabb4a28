#include "params/home.h"
#include "params/stage.h"
#include "params/verbs.h"

namespace bowline::params {
namespace {

bool is_there(const Home& home, const std::shared_ptr<device::OpenDevice>& device) {
  return device ? home.block && home.block->device_handle() == device : home.block == nullptr;
}

bool has_to_move(const Storage& s, const std::shared_ptr<device::OpenDevice>& device) {
  const bool waits_for_a_trainer = is_training(s.role) && !s.home.block;
  return s.home.valid() && !is_there(s.home, device) && !waits_for_a_trainer;
}

}  // namespace

Status move(Table& table, std::shared_ptr<device::OpenDevice> device, int busy) {
  bool moves = table.device() != device;
  device::Demand demand;
  for (const Storage& s : table.storages) {
    if (has_to_move(s, device)) {
      moves = true;
      demand.add(s.bytes(), device::MemoryKind::device);
    }
  }
  if (!moves) {
    return {};
  }
  BOWLINE_ASSIGN(Stage stage, Stage::begin(table, busy, "to()"));
  if (device) {
    BOWLINE_TRY(device->require_room(demand).at("While making room for all storages."));
  }
  for (uint32_t tie = 0; tie < table.storages.size(); ++tie) {
    if (!has_to_move(table.storages[tie], device)) {
      continue;
    }
    Storage& storage = stage.storage(tie);
    const std::string place = format("While moving storage {} to {}.", tie,
                                     device ? device->info().name : std::string("host memory"));
    std::vector<std::byte> scratch;
    Result<Bytes> bytes = read_all(storage, scratch);
    BOWLINE_TRY(std::move(bytes).status().at(place));
    Result<Home> home = make_home(device, bytes.value());
    BOWLINE_TRY(std::move(home).status().at(place));
    storage.home = std::move(home).value();
    ++storage.generation;
  }
  stage.set_device(std::move(device));
  stage.commit();
  return {};
}

}  // namespace bowline::params
